/* Family gemma3 (dense, 270M to 27B; alone, or within a model that sees): windows whose rotary
 * embeddings have a base of their own, every sixth layer sees all, norms of 1 + w before and after
 * both operators. Names and sums after modeling_gemma3.py (Hugging Face) and llama.cpp's
 * src/models/gemma3.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>

/* clang-format off */
/* The configurations of models that see leave out what is the default. */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"},
     8, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"},
     4, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 256, 2, 4096},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     131072, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"},
     {"rope_parameters.full_attention.rope_theta", "rope_theta"}, 1e6, 1.0, 1e12},
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base_swa"},
     {"rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq"}, 1e4, 1.0, 1e12},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(logit_cap), KEY_FLOAT, {"final_logit_softcapping"}, {"final_logit_softcapping"},
     0.0, 0.0, 1e6},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_ATTENTION_AFTER, false, {"blk.%l.post_attention_norm.weight"},
     {HF "post_attention_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, false, {"blk.%l.ffn_norm.weight"},
     {HF "pre_feedforward_layernorm.weight"}},
    {TENSOR_EXPERT_AFTER, false, {"blk.%l.post_ffw_norm.weight"},
     {HF "post_feedforward_layernorm.weight"}},
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"vision_tower.*", "model.vision_tower.*",
                                      "multi_modal_projector.*", "model.multi_modal_projector.*",
                                      NULL};
static const char *const stops[] = {"<end_of_turn>", NULL};

#define LAYERS_27B 62

/* The largest model's scores are scaled by another width than a head's (llama.cpp knows it by its
 * layers). */
static float score_scale(const struct hparams *hp, struct describer *d)
{
    int heads = hp->common.mixer.heads, dim = hp->common.mixer.key_dim;
    float width = (float)dim;

    if (!describe_is_gguf(d))
        width = describe_float(d, "query_pre_attn_scalar", 256.0f);
    else if (hp->n_layers == LAYERS_27B && heads)
        width = (float)(hp->hidden / heads);
    if (!(width >= 1.0f))
        describe_refuse(d, "query_pre_attn_scalar of its config.json must be positive");
    return width == (float)dim ? 0.0f : 1.0f / sqrtf(width);
}

static void layers(struct hparams *hp, struct describer *d)
{
    static const char *const plain[] = {"default", NULL};
    float scale = score_scale(hp, d);

    describe_only(d, "rope_parameters.sliding_attention.rope_type", plain);
    describe_never(d, "use_bidirectional_attention");
    describe_only_number(d, "rope_parameters.sliding_attention.partial_rotary_factor", 1.0);
    describe_only_number(d, "rope_parameters.full_attention.partial_rotary_factor", 1.0);
    hp->embedding_scale = sqrtf((float)hp->hidden);
    (void)describe_per_layer(d, hp, "layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        m->scale = scale;
        if (!m->window || !describe_windowed(d, l, 6, false)) {
            m->window = 0;
            continue;
        }
        m->second_rope = true;
        hp->second_rope.dims = hp->second_rope.of = m->rope_dims;
    }
}

const struct family family_gemma3 = {
    .name = "gemma3",
    .gguf = {"gemma3"},
    .exported = true,
    .json = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "gemma3_text", "gemma3"},
    .nested = "language_model.model.",
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.activation = ACTIVATION_GELU},
              .norms = {.kind = NORM_RMS_ONE, .before = true, .after = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .rope_kind = {"rope_scaling.rope_type", "rope_scaling.type",
                  "rope_parameters.full_attention.rope_type"},
    .tied = "tie_word_embeddings",
    .tied_unsaid = true,
    .ignored = ignored,
    .stops = stops,
};
