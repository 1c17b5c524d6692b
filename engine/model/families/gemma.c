/* Family gemma4 (26B-A4B, 31B; E2B, E4B): windows, some layers that see all with heads of their
 * own, whose values are their keys, a dense feed-forward beside the experts, norms before and
 * after; the small ones: inputs of single layers, and last layers that read the keys and values of
 * earlier ones. Names and sums after modeling_gemma4.py (Hugging Face) and llama.cpp's
 * gguf-py/gguf/constants.py (MODEL_ARCH.GEMMA4). Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     4096, 1, 1 << 27},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(logit_cap), KEY_FLOAT, {"final_logit_softcapping"}, {"final_logit_softcapping"},
     0.0, 0.0, 1e6},
    /* of layers with a window; GGUF lists their key-value heads per layer */
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"},
     0, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {NULL}, {"num_key_value_heads"}, 0, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length_swa"}, {"head_dim"}, 0, 2, 4096},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count_swa"}, {NULL}, 0, 2, 4096},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base_swa"},
     {"rope_parameters.sliding_attention.rope_theta"}, 10000.0, 1.0, 1e12},
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_experts"}, 0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"top_k_experts"}, 0, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"}, {"moe_intermediate_size"},
     0, 1, 1 << 20},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {"global_head_dim", "attention.key_length"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {"rope_parameters.full_attention.rope_theta", "rope.freq_base"},
    {"intermediate_size", "feed_forward_length"},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"},
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
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
    {TENSOR_SHARED_AFTER, false, {"blk.%l.post_ffw_norm_1.weight"},
     {HF "post_feedforward_layernorm_1.weight"}},
    {TENSOR_ROUTED_NORM, false, {"blk.%l.pre_ffw_norm_2.weight"},
     {HF "pre_feedforward_layernorm_2.weight"}},
    {TENSOR_ROUTED_AFTER, false, {"blk.%l.post_ffw_norm_2.weight"},
     {HF "post_feedforward_layernorm_2.weight"}},
    {TENSOR_LAYER_SCALE, false, {"blk.%l.layer_output_scale.weight"}, {HF "layer_scalar"}},
    TENSORS_INPUTS,
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {HF "router.proj.weight"}},
    {TENSOR_ROUTER_NORM, false, {"blk.%l.ffn_gate_inp.scale"}, {HF "router.scale"}},
    {TENSOR_EXPERT_SCALE, false, {"blk.%l.ffn_down_exps.scale"}, {HF "router.per_expert_scale"}},
    {TENSOR_GATE, false, {NULL}, {HF "experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {NULL}, {HF "experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {NULL}, {HF "experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, {HF "experts.gate_up_proj"}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {HF "experts.down_proj"}},
    TENSORS_DENSE,
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate.weight"}, {HF "mlp.gate_proj.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up.weight"}, {HF "mlp.up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down.weight"}, {HF "mlp.down_proj.weight"}},
    {TENSOR_ROPE_FREQS, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.visual.*",       "model.vision_tower.*",
                                      "model.embed_vision.*", "model.audio_tower.*",
                                      "model.embed_audio.*",  NULL};
static const char *const stops[] = {"<turn|>", NULL};

/* Rotated dimensions of a full-attention head. GGUF divides the frequencies of the others by
 * 1e30. */
static int turned(struct describer *d, int key_dim)
{
    float part = describe_float(d, "rope_parameters.full_attention.partial_rotary_factor", 1.0f), x;
    const struct tensor_view *t = family_tensor(d->family, d->f, TENSOR_ROPE_FREQS, 0, 0, false);
    int n = 0;

    if (!t)
        return part > 0.0f && part <= 1.0f ? (int)((float)key_dim * part) : key_dim;
    if (t->type != DTYPE_F32 || t->n_dims != 1 || t->dims[0] != key_dim / 2)
        describe_refuse(d, "its rope_freqs.weight must hold a number for each pair of a head");
    for (int i = 0; !d->rc && i < key_dim / 2; i++) {
        memcpy(&x, (const uint8_t *)t->data + 4 * (size_t)i, 4);
        if (x != 1.0f && x < 1e20f)
            describe_refuse(d,
                            "its rope_freqs.weight stretches frequencies, which is not computed");
        n += x == 1.0f && i == n;
    }
    return 2 * n;
}

/* transformers 5 writes such a layer's own settings under its number, the same for all. */
static void own_heads(const struct hparams *hp, struct describer *d, struct mixer_shape *m)
{
    char name[80];
    int n = m->kv_heads, dim = m->key_dim;

    for (int l = 0; l < hp->n_layers && !describe_is_gguf(d); l++) {
        if (!describe_listed(d, "layer_types", l, "full_attention"))
            continue;
        snprintf(name, sizeof name, "per_layer_config.%d.head_dim", l);
        dim = describe_int(d, name, dim, 2, 4096);
        snprintf(name, sizeof name, "per_layer_config.%d.num_key_value_heads", l);
        n = describe_int(d, name, n, 1, 4096);
    }
    m->kv_heads = n;
    m->key_dim = m->value_dim = dim;
}

/* A full-attention layer: its own heads, and a part of their pairs rotated. */
static struct mixer_shape whole(struct hparams *hp, struct describer *d)
{
    struct mixer_shape m = hp->common.mixer;

    m.window = 0;
    m.key_dim = m.value_dim = describe_int(d, "global_head_dim", m.key_dim, 2, 4096);
    m.values_are_keys = describe_flag(d, "attention_k_eq_v", false);
    if (m.values_are_keys)
        m.kv_heads = describe_int(d, "num_global_key_value_heads", m.kv_heads, 1, 4096);
    own_heads(hp, d, &m);
    m.rope = ROPE_PROPORTIONAL;
    m.rope_dims = turned(d, m.key_dim);
    m.second_rope = true;
    hp->second_rope.theta = describe_float(d, "rope_parameters.full_attention.rope_theta",
                                           hp->rope_theta);
    hp->second_rope.dims = m.rope_dims;
    hp->second_rope.of = m.key_dim;
    return m;
}

static bool sees_all(struct describer *d, int layer)
{
    return describe_is_gguf(d) ? !describe_int_at(d, "sliding_window_pattern", layer, 1)
                               : describe_listed(d, "layer_types", layer, "full_attention");
}

static void check_settings(struct describer *d)
{
    static const char *const plain[] = {"default", NULL}, *const part[] = {"proportional", NULL},
                             *const causal[] = {"vision", NULL};

    describe_only(d, "rope_parameters.sliding_attention.rope_type", plain);
    describe_only(d, "rope_parameters.full_attention.rope_type", part);
    describe_only(d, "use_bidirectional_attention", causal);
    describe_only_number(d, "rope_parameters.full_attention.factor", 1.0);
    if (!describe_is_gguf(d) &&
        family_config(d->f, "rope_parameters.full_attention.rope_type").type == META_NONE)
        describe_refuse(d, "its config.json has no rope_parameters.full_attention.rope_type");
}

/* The dense part's width. Layers without keys of their own may be twice as wide: GGUF lists the
 * widths then. */
static int dense_width(const struct hparams *hp, struct describer *d, int layer)
{
    int width = describe_int_at(d, "intermediate_size", layer, 0);
    bool twice = !describe_is_gguf(d) && hp->layers[layer].mixer.keys_of &&
                 describe_flag(d, "use_double_wide_mlp", false);

    if (width < 1 || width > 1 << 20)
        describe_refuse(d, "its intermediate_size (feed_forward_length) must be from 1 to %d",
                        1 << 20);
    return twice ? 2 * width : width;
}

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape all = whole(hp, d);

    check_settings(d);
    hp->embedding_scale = sqrtf((float)hp->hidden);
    if (!describe_is_gguf(d) && !describe_per_layer(d, hp, "layer_types"))
        describe_refuse(d, "its config.json has no layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (sees_all(d, l))
            s->mixer = all;
        if (describe_is_gguf(d)) {
            s->mixer.kv_heads = describe_int_at(d, "num_key_value_heads", l, s->mixer.kv_heads);
            s->mixer.values_are_keys = !describe_has(d, TENSOR_V, l);
        }
    }
    describe_layer_inputs(hp, d);
    describe_shared_keys(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct ffn_shape *f = &hp->layers[l].ffn;
        bool routed = f->kind == FFN_ROUTED;

        if (routed)
            f->kind = FFN_DENSE_AND_ROUTED;
        if (routed)
            describe_shared(f, dense_width(hp, d, l));
        else if (!describe_has(d, TENSOR_DENSE_DOWN, l))
            f->shared_width = dense_width(hp, d, l);
    }
}

const struct family family_gemma4 = {
    .name = "gemma4",
    .gguf = {"gemma4"},
    .exported = true,
    .gguf_fused = true,
    .json = {"Gemma4ForConditionalGeneration", "Gemma4ForCausalLM", "gemma4", "gemma4_text"},
    .nested = "model.language_model.",
    .shape =
        {.mixer = {.qk_norm = QK_NORM_HEAD, .scale = 1.0f, .value_norm = true},
         .ffn = {.activation = ACTIVATION_GELU,
                 .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .expert_scales = true}},
         .norms = {.kind = NORM_RMS, .before = true, .after = true},
         .scaled = true},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    ROPE_NAMES,
    .tied_unsaid = true,
    .ignored = ignored,
    .stops = stops,
};
