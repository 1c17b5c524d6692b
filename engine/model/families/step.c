/* Family step3p5 (StepFun's Step-3.5-Flash and the text of Step-3.7-Flash, 196B-A11B): windows in
 * three of four layers, which have more heads and rotary embeddings of their own, a gate a head,
 * sigmoid scores with a bias, a shared expert, and in the last layers limits of the experts'
 * halves. Names and sums after modeling_step3p7.py and configuration_step3p7.py (Hugging Face) and
 * llama.cpp's src/models/step35.cpp and conversion/step3.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define HEADS "num_attention_heads_per_layer"
#define FULL "rope_parameters.full_attention."
#define WINDOWED "rope_parameters.sliding_attention."

/* As published, rope_theta is a list of the layers'; the first one sees all. The heads are those of
 * layer 0 until `layers` knows each one's. */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"},
     {"num_attention_groups", "num_key_value_heads"}, 0, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 128, 2, 4096},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     4096, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"}, {FULL "rope_theta", "rope_theta.0",
     "rope_theta"}, 10000.0, 1.0, 1e12},
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base_swa"}, {WINDOWED "rope_theta"},
     0.0, 1.0, 1e12},
    {FIELD(second_rope.dims), KEY_INT, {"rope.dimension_count_swa"}, {NULL}, 0, 2, 4096},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_EPS,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"},
     {"n_routed_experts", "moe_num_experts", "num_local_experts"}, 0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok", "moe_top_k"},
     8, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"}, {"moe_intermediate_size"},
     0, 1, 1 << 20},
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"moe_router_scaling_factor"}, 1.0, 1e-6, 1e6},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {HEADS, "attention.head_count"},
    {"swiglu_limits", "swiglu_clamp_exp"},
    {"swiglu_limits_shared", "swiglu_clamp_shexp"},
    RENAMED_WINDOWS,
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    {TENSOR_MIX_Z, false, {"blk.%l.attn_gate.weight"}, {HF "self_attn.g_proj.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"},
     {HF "moe.gate.weight", HF "mlp.gate.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "moe.router_bias", HF "mlp.gate.e_score_correction_bias"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {HF "mlp.experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {HF "mlp.experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {HF "mlp.experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {HF "moe.gate_proj.weight"}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {HF "moe.up_proj.weight"}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"},
     {HF "moe.down_proj.weight", HF "mlp.experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, {HF "mlp.experts.gate_up_proj"}},
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"},
     {HF "share_expert.gate_proj.weight", HF "mlp.shared_experts.gate_proj.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     {HF "share_expert.up_proj.weight", HF "mlp.shared_experts.up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     {HF "share_expert.down_proj.weight", HF "mlp.shared_experts.down_proj.weight"}},
    TENSORS_DENSE,
    TENSORS_MTP_NAMED(HF "enorm.weight", HF "hnorm.weight", HF "eh_proj.weight",
                      HF "transformer.shared_head.norm.weight", HF "embed_tokens.weight",
                      HF "transformer.shared_head.output.weight"),
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"vision_model.*", "vit_large_projector.*",
                                      "model.vision_model.*", "model.multi_modal_projector.*",
                                      NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

/* Lists of the published config.json have entries of the blocks for further tokens after the
 * layers', those of transformers' do not. */
static void check_lists(const struct hparams *hp, struct describer *d)
{
    static const char *const names[] = {"layer_types", "mlp_layer_types", "swiglu_limits",
                                        "swiglu_limits_shared"};
    int further = describe_int(d, "num_nextn_predict_layers", 0, 0, 64);

    for (size_t i = 0; i < sizeof names / sizeof *names && !describe_is_gguf(d); i++) {
        struct meta_value v = family_config(d->f, names[i]);

        if (v.type == META_ARRAY && v.len != (size_t)hp->n_layers &&
            v.len != (size_t)(hp->n_layers + further))
            describe_refuse(d, "%s of its config.json lists %zu layers; it has %d", names[i], v.len,
                            hp->n_layers);
    }
}

/* Variants that the official code does not compute, or otherwise than the published one says. */
static void check_variants(struct describer *d)
{
    static const char *const per_head[] = {"per-head", NULL}, *const sigmoid[] = {"sigmoid", NULL};
    static const char *const set[] = {"gating",
                                      "use_head_wise_attn_gate",
                                      "use_qk_norm",
                                      "use_moe_router_bias",
                                      "norm_expert_weight",
                                      "zero_centered"};

    describe_only(d, "gating", per_head);
    describe_only(d, "moe_router_activation", sigmoid);
    describe_never(d, "use_bidirectional_attention");
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (!describe_flag(d, set[i], true))
            describe_refuse(d, "%s of its config.json is false, which is not computed for %s",
                            set[i], d->family->name);
}

/* Whether layer l, or a block for further tokens after the last one, has a window. */
static bool windowed(struct describer *d, int l, int n_layers)
{
    if (describe_is_gguf(d))
        return describe_int_at(d, "sliding_window_pattern", l, 0) != 0;
    return describe_listed(d, "layer_types", l, "sliding_attention") ||
           (l >= n_layers &&
            describe_listed(d, "mtp_layer_types", l - n_layers, "sliding_attention"));
}

static int heads_of(struct describer *d, int l, bool window, int common)
{
    char name[80];
    int all = describe_int(d, "num_attention_heads", common, 1, 4096), other;

    if (describe_is_gguf(d))
        return describe_int_at(d, HEADS, l, common);
    if (!window)
        return all;
    other = describe_int(d, "attention_other_setting.num_attention_heads", all, 1, 4096);
    other = describe_int(d, "num_sliding_attention_heads", other, 1, 4096);
    snprintf(name, sizeof name, "per_layer_config.%d.num_attention_heads", l);
    return describe_int(d, name, other, 1, 4096);
}

/* The part of a head that layers with a window rotate, and their base, by config.json. */
static void read_windowed(struct hparams *hp, struct describer *d)
{
    float part = describe_float(d, WINDOWED "partial_rotary_factor", 0.0f);
    int l = 0;

    while (l < hp->n_layers && !windowed(d, l, hp->n_layers))
        l++;
    if (l == hp->n_layers)
        return;
    if (part == 0.0f)
        part = (float)describe_number_at(d, "partial_rotary_factors", l, 1.0);
    if (part > 0.0f && part <= 1.0f)
        hp->second_rope.dims = (int)((double)hp->common.mixer.key_dim * (double)part);
    if (hp->second_rope.theta == 0.0f)
        hp->second_rope.theta = (float)describe_number_at(d, "rope_theta", l,
                                                          (double)hp->rope_theta);
}

/* A list gives every layer the numbers of its kind. */
static void check_rotation(const struct hparams *hp, struct describer *d, int l)
{
    const struct mixer_shape *m = &hp->layers[l].mixer;
    double theta = (double)(m->second_rope ? hp->second_rope.theta : hp->rope_theta),
           part = (double)m->rope_dims / m->key_dim;
    struct meta_value thetas = family_config(d->f, "rope_theta"),
                      parts = family_config(d->f, "partial_rotary_factors");

    if (describe_is_gguf(d) || family_config(d->f, FULL "rope_theta").type != META_NONE)
        return;
    if (thetas.type == META_ARRAY && describe_number_at(d, "rope_theta", l, theta) != theta)
        describe_refuse(d,
                        "rope_theta of its config.json gives layer %d another base than the "
                        "first one of its kind",
                        l);
    if (parts.type == META_ARRAY &&
        fabs(describe_number_at(d, "partial_rotary_factors", l, part) - part) * m->key_dim >= 1.0)
        describe_refuse(d,
                        "partial_rotary_factors of its config.json gives layer %d another part "
                        "than the first one of its kind",
                        l);
}

static void read_ropes(struct hparams *hp, struct describer *d)
{
    static const char *const plain[] = {"default", NULL}, *const scaled[] = {"default", "yarn",
                                                                             "linear", "llama3",
                                                                             NULL};
    struct mixer_shape *m = &hp->common.mixer;

    describe_only(d, WINDOWED "rope_type", plain);
    describe_only(d, FULL "rope_type", scaled);
    describe_only(d, "rope_scaling.rope_type", scaled);
    describe_only(d, "rope_scaling.type", scaled);
    if (describe_is_gguf(d)) { /* llama.cpp halves it for layers that see all */
        hp->second_rope.dims = hp->second_rope.dims ? hp->second_rope.dims : m->rope_dims;
        m->rope_dims /= 2;
    } else {
        read_windowed(hp, d);
    }
    if (hp->second_rope.theta == 0.0f)
        hp->second_rope.theta = hp->rope_theta;
    if (m->rope_dims < 2 || m->rope_dims % 2 || hp->second_rope.dims % 2 ||
        hp->second_rope.dims > m->key_dim)
        describe_refuse(d,
                        "%d and %d of %d values of a head are rotated; the numbers must be "
                        "even, and not larger",
                        m->rope_dims, hp->second_rope.dims, m->key_dim);
}

/* config.json's scores are divided by the root of query_pre_attn_scalar. */
static void read_scale(struct hparams *hp, struct describer *d)
{
    double n = (double)describe_float(d, "query_pre_attn_scalar", 0.0f);

    if (!describe_is_gguf(d) && n > 0.0 && n != hp->common.mixer.key_dim)
        hp->common.mixer.scale = (float)(1.0 / sqrt(n));
}

static void shape_mixer(struct hparams *hp, struct describer *d, int l)
{
    struct mixer_shape *m = &hp->layers[l].mixer;
    bool window = windowed(d, l, hp->n_layers);

    m->rope_dims = hp->common.mixer.rope_dims;
    m->scale = hp->common.mixer.scale;
    m->heads = heads_of(d, l, window, m->heads);
    if (window && !m->window)
        describe_refuse(d, "layer %d has a window, but the metadata gives no size", l);
    if (!window)
        m->window = 0;
    if (window && hp->second_rope.dims) {
        m->second_rope = true;
        m->rope_dims = hp->second_rope.dims;
        hp->second_rope.of = hp->second_rope.dims;
    }
    if (m->heads < 1 || m->heads > 4096 || m->kv_heads < 1 || m->heads % m->kv_heads)
        describe_refuse(d, "layer %d has %d heads that share %d of keys and values", l, m->heads,
                        m->kv_heads);
}

/* 0 and null: no limit. One of the two alone leaves the other's experts as they are. */
static void read_limits(struct ffn_shape *s, struct describer *d, int l)
{
    double routed = describe_number_at(d, "swiglu_limits", l, 0.0),
           shared = describe_number_at(d, "swiglu_limits_shared", l, 0.0);

    if (!s->experts)
        routed = shared;
    if (!(routed >= 0.0 && routed < 1e30) || !(shared >= 0.0 && shared < 1e30))
        describe_refuse(d, "limits of %g and %g in layer %d make no sense", routed, shared, l);
    if (routed == 0.0 && shared == 0.0)
        return;
    s->activation = ACTIVATION_BOUNDED_SILU;
    s->limit = routed > 0.0 ? (float)routed : FLT_MAX;
    s->shared_limit = shared > 0.0 ? (float)shared : FLT_MAX;
    if (s->shared_limit == s->limit || !s->shared || !s->experts)
        s->shared_limit = 0.0f;
}

/* Whether a list in a text, "3,4,5", has the number. */
static bool listed_in(const struct meta_value *v, int number)
{
    char text[4096];

    if (v->type != META_STRING || v->len >= sizeof text)
        return false;
    memcpy(text, v->s, v->len);
    text[v->len] = 0;
    for (char *at = text, *end; *at; at = end) {
        long n = strtol(at, &end, 10);

        if (end == at)
            end++;
        else if (n == number)
            return true;
    }
    return false;
}

/* Of a folder without weights: which layers have experts. */
static void shape_ffn(struct hparams *hp, struct describer *d, int l)
{
    struct meta_value listed = family_config(d->f, "moe_layers_enum"),
                      types = family_config(d->f, "mlp_layer_types");
    struct ffn_shape *s = &hp->layers[l].ffn;
    bool dense = types.type == META_ARRAY ? describe_listed(d, "mlp_layer_types", l, "dense")
                 : listed.type == META_NONE
                     ? l < 3
                     : !listed_in(&listed, l) && !describe_numbered(d, "moe_layers_enum", l);

    *s = hp->common.ffn;
    if (dense)
        describe_dense(s, describe_int(d, "intermediate_size", 0, 1, 1 << 20));
    else
        describe_shared(s, describe_int(d, "share_expert_dim",
                                        describe_int(d, "share_expert_dims", 0, 1, 1 << 20), 1,
                                        1 << 20));
}

static void layers(struct hparams *hp, struct describer *d)
{
    check_lists(hp, d);
    check_variants(d);
    if (!describe_is_gguf(d))
        describe_only_number(d, "attention_other_setting.num_attention_groups",
                             hp->common.mixer.kv_heads);
    read_ropes(hp, d);
    read_scale(hp, d);
    for (int l = 0; l < hp->n_layers && !d->rc; l++) {
        shape_mixer(hp, d, l);
        check_rotation(hp, d, l);
        if (!describe_has(d, TENSOR_ATTENTION_NORM, l))
            shape_ffn(hp, d, l);
        read_limits(&hp->layers[l].ffn, d, l);
    }
    if (!hp->second_rope.of) {
        hp->second_rope.theta = 0.0f;
        hp->second_rope.dims = 0;
    }
}

/* The block for further tokens has a window or none, as its entry of the lists says. */
static int mtp_like(const struct hparams *hp, struct describer *d)
{
    bool window = windowed(d, hp->n_layers, hp->n_layers);
    int l = hp->n_layers - 1;

    while (l >= 0 && (hp->layers[l].mixer.window > 0) != window)
        l--;
    if (l < 0)
        describe_refuse(d, "its block for further tokens %s a window, and no layer is like it",
                        window ? "has" : "lacks");
    return l;
}

const struct family family_step3p5 = {
    .name = "step3p5",
    .gguf = {"step35"},
    .exported = true,
    .json = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration", "step3p5", "step3p7"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_HEADS},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS_ONE, .before = true}},
    .nested = "model.language_model.",
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .extra_layers = true,
    .mtp_like = mtp_like,
    .mtp_last_norm = true,
    .gguf_half_rope = true,
    ROPE_NAMES_TWO,
    .ignored = ignored,
    .stops = stops,
};
