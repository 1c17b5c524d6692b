/* Family muse_glimmer (Meta's Muse Glimmer, 30B, dense, text): normed embeddings; windows, which
 * alone are rotated; heads of q and k normed without weights, q then times a factor; gates of the
 * attention's output; norms of 1 + w before and after both operators, those after with an epsilon
 * of their own. Names and sums after modeling_muse_glimmer.py (Hugging Face) and llama.cpp's
 * src/models/muse-glimmer.cpp and conversion/muse_glimmer.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_SIZES,
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     131072, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"},
     {"rope_parameters.rope_theta", "rope_theta"}, 10000.0, 1.0, 1e12},
    KEYS_EPS,
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     2048, 0, 1 << 27},
    {FIELD(common.mixer.q_norm_unsaid), KEY_FLOAT, {NULL}, {"qk_scale_factor"}, 3.87, 1e-6, 1e6},
    {FIELD(common.norms.eps_after), KEY_FLOAT, {NULL}, {"post_norm_eps"}, 1e-8, 1e-12, 1.0},
    {FIELD(logit_cap), KEY_FLOAT, {"final_logit_softcapping"}, {"final_logit_softcapping"},
     0.0, 0.0, 1e6},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    RENAMED_WINDOWS,
    {"output_multiplier", "logit_scale"},
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_ATTENTION,
    {TENSOR_Q_NORM, false, {"blk.%l.attn_q_norm.weight"}, {NULL}},
    {TENSOR_K_NORM, false, {"blk.%l.attn_k_norm.weight"}, {NULL}},
    {TENSOR_MIX_Z, false, {"blk.%l.attn_gate.weight"}, {HF "self_attn.gate_proj.weight"}},
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

static const char *const ignored[] = {"*vision_tower.*", "*vision_adapter.*",
                                      "*vision_projection.*", NULL};
static const char *const stops[] = {"<|eot|>", "<|end_of_text|>", NULL};

#define CAP 20.0f               /* of logits, where config.json has none */
#define MULTIPLIER 0.196116135f /* likewise */

/* Without a list every fourth layer counted from the last sees all. */
static bool is_windowed(const struct hparams *hp, struct describer *d, int layer)
{
    if (!describe_is_gguf(d) && family_config(d->f, "layer_types").type != META_ARRAY)
        return (hp->n_layers - 1 - layer) % 4 != 0;
    return describe_windowed(d, layer, 4, false);
}

static bool is_rotated(const struct hparams *hp, struct describer *d, int layer, bool windowed)
{
    double missing = (hp->n_layers - 1 - layer) % 4 != 0;

    return describe_is_gguf(d) ? windowed
                               : describe_number_at(d, "layer_rope_theta", layer, missing) != 0.0;
}

static void layers(struct hparams *hp, struct describer *d)
{
    float by = describe_float(d, "output_multiplier", MULTIPLIER);

    if (by == 0.0f)
        describe_refuse(d, "output_multiplier is 0: all logits would be");
    else
        hp->logit_divisor = 1.0f / by;
    if (hp->logit_cap == 0.0f && !describe_is_gguf(d) &&
        family_config(d->f, "final_logit_softcapping").type == META_NONE)
        hp->logit_cap = CAP;
    hp->embedding_normed = true;
    (void)describe_per_layer(d, hp, "layer_types");
    (void)describe_per_layer(d, hp, "layer_rope_theta");
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;
        bool windowed = is_windowed(hp, d, l);

        if (windowed && !hp->common.mixer.window)
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
        m->window = windowed ? hp->common.mixer.window : 0;
        if (!is_rotated(hp, d, l, windowed)) {
            m->rope = ROPE_NONE;
            m->rope_dims = 0;
        }
    }
}

const struct family family_muse_glimmer = {
    .name = "muse_glimmer",
    .gguf = {"muse-glimmer"},
    .exported = true,
    .json = {"MuseGlimmerForConditionalGeneration", "muse_glimmer", "muse_glimmer_text"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_APART},
              .norms = {.kind = NORM_RMS_ONE, .before = true, .after = true}},
    .nested = "model.language_model.",
    .gguf_rope = ROPE_PAIRS,
    .gguf_eps = true,
    .last_norm_plain = true,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
