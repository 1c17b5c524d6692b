/* Family gemma3n (Gemma 3n E2B and E4B; alone, or within a model that sees and hears): several
 * residual streams, a learned residual beside the attention, inputs of single layers, keys and
 * values shared by the last layers, and dense layers of which the largest gates count. Names and
 * sums after modeling_gemma3n.py (Hugging Face) and llama.cpp's src/models/gemma3n.cpp and
 * conversion/gemma.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>

/* clang-format off */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"},
     8, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"},
     2, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 256, 2, 4096},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     32768, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"},
     {"rope_parameters.full_attention.rope_theta", "rope_theta"}, 1e6, 1.0, 1e12},
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base_swa"},
     {"rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq"}, 1e4, 1.0, 1e12},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     512, 1, 1 << 27},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(logit_cap), KEY_FLOAT, {"final_logit_softcapping"}, {"final_logit_softcapping"},
     30.0, 0.0, 1e6},
    {FIELD(streams), KEY_INT, {"altup.num_inputs"}, {"altup_num_inputs"},
     4, 2, HPARAMS_STREAMS_MOST},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"},
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
    {"altup_active_idx", "altup.active_idx"},
    {"sparsity", "activation_sparsity_scale"},
    {NULL, NULL},
};

#define ALTUP HF "altup."
#define LAUREL HF "laurel."

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
    TENSORS_INPUTS,
    {TENSOR_STREAM_IN, false, {"altup_proj.weight"}, {"model.altup_projections.%e.weight"}},
    {TENSOR_STREAM_OUT, false, {"altup_unembd_proj.weight"},
     {"model.altup_unembed_projections.%e.weight"}},
    {TENSOR_STREAM_NORM, false, {"blk.%l.altup_router_norm.weight"}, {ALTUP "router_norm.weight"}},
    {TENSOR_STREAM_ROUTER, false, {"blk.%l.altup_router.weight"},
     {ALTUP "modality_router.weight"}},
    {TENSOR_STREAM_PREDICT, false, {"blk.%l.altup_predict_coef.weight"},
     {ALTUP "prediction_coefs.weight"}},
    {TENSOR_STREAM_CORRECT, false, {"blk.%l.altup_correct_coef.weight"},
     {ALTUP "correction_coefs.weight"}},
    {TENSOR_STREAM_SCALE, false, {"blk.%l.altup_correct_scale.weight"},
     {ALTUP "correct_output_scale"}},
    {TENSOR_LAUREL_IN, false, {"blk.%l.laurel_l.weight"}, {LAUREL "linear_left.weight"}},
    {TENSOR_LAUREL_OUT, false, {"blk.%l.laurel_r.weight"}, {LAUREL "linear_right.weight"}},
    {TENSOR_LAUREL_AFTER, false, {"blk.%l.laurel_post_norm.weight"},
     {LAUREL "post_laurel_norm.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {
    "model.vision_tower.*", "vision_tower.*",       "model.audio_tower.*",
    "audio_tower.*",        "model.embed_vision.*", "embed_vision.*",
    "model.embed_audio.*",  "embed_audio.*",        NULL};
static const char *const stops[] = {"<end_of_turn>", NULL};

#define SPARSE_UNSAID 10 /* layers, of more than as many, where config.json has no list */
#define PART_UNSAID 0.95

/* Where the part `p` of a normal distribution lies below, in deviations from its mean. */
static double normal_quantile(double p)
{
    double low = -40.0, high = 40.0;

    for (int i = 0; i < 200; i++) {
        double x = (low + high) / 2;

        *(0.5 * erfc(-x / sqrt(2.0)) < p ? &low : &high) = x;
    }
    return (low + high) / 2;
}

/* Deviations above the mean that a layer's gates must reach to count; 0: all do. GGUF says so,
 * config.json which part of them does not count. */
static float sparsity(const struct hparams *hp, struct describer *d, int layer)
{
    double part = layer < SPARSE_UNSAID && hp->n_layers > SPARSE_UNSAID ? PART_UNSAID : 0.0, by;

    if (describe_is_gguf(d)) {
        by = describe_number_at(d, "sparsity", layer, -HUGE_VAL);
        if (!(by > -30.0))
            return 0.0f;
    } else {
        part = describe_number_at(d, "activation_sparsity_pattern", layer, part);
        if (part < 0.0 || part >= 1.0)
            describe_refuse(d, "activation_sparsity_pattern of its config.json must be from 0 to "
                               "below 1");
        if (!(part > 0.0) || part >= 1.0)
            return 0.0f;
        by = normal_quantile(part);
    }
    if (!(by < 30.0))
        describe_refuse(d, "layer %d counts no gates", layer);
    return fabs(by) < 1e-30 ? 1e-30f : (float)by;
}

static int laurel_rank(struct describer *d)
{
    const struct tensor_view *t =
        d->family->tensors ? family_tensor(d->family, d->f, TENSOR_LAUREL_IN, 0, 0, false) : NULL;

    return t && t->n_dims == 2 && t->dims[0] > 0 && t->dims[0] <= 1 << 16
               ? (int)t->dims[0]
               : describe_int(d, "laurel_rank", 64, 1, 1 << 16);
}

static void check_settings(struct describer *d)
{
    static const char *const plain[] = {"default", NULL};

    describe_only(d, "rope_parameters.sliding_attention.rope_type", plain);
    describe_never(d, "use_bidirectional_attention");
    describe_only_number(d, "rope_parameters.sliding_attention.partial_rotary_factor", 1.0);
    describe_only_number(d, "rope_parameters.full_attention.partial_rotary_factor", 1.0);
    describe_only_number(d, "altup_active_idx", 0.0);
    if (!describe_flag(d, "altup_correct_scale", true))
        describe_refuse(d, "altup_correct_scale of its config.json is false, which is not "
                           "computed");
}

static void layers(struct hparams *hp, struct describer *d)
{
    check_settings(d);
    hp->embedding_scale = sqrtf((float)hp->hidden);
    hp->streams_scaled = true;
    hp->laurel = laurel_rank(d);
    (void)describe_per_layer(d, hp, "layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        hp->layers[l].ffn.limit = sparsity(hp, d, l);
        if (!describe_windowed(d, l, 5, false)) {
            m->window = 0;
            continue;
        }
        m->second_rope = true;
        hp->second_rope.dims = hp->second_rope.of = m->rope_dims;
    }
    describe_layer_inputs(hp, d);
    describe_shared_keys(hp, d);
    if (!hp->layers[0].inputs)
        describe_refuse(d, "its layers have no inputs of their own (hidden_size_per_layer_input)");
}

const struct family family_gemma3n = {
    .name = "gemma3n",
    .gguf = {"gemma3n"},
    .exported = true,
    .json = {"Gemma3nForConditionalGeneration", "Gemma3nForCausalLM", "gemma3n", "gemma3n_text"},
    .nested = "model.language_model.",
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .scale = 1.0f, .value_norm = true},
              .ffn = {.activation = ACTIVATION_GELU},
              .norms = {.kind = NORM_RMS, .before = true, .after = true}},
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
