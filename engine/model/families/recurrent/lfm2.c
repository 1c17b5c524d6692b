/* Families lfm2 (dense) and lfm2_moe: gated short convolutions, some layers of attention, the first
 * feed-forwards dense. Names after modeling_lfm2.py, modeling_lfm2_moe.py (Hugging Face) and
 * llama.cpp's gguf-py/gguf/constants.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"routed_scaling_factor"}, 1.0, 1e-6, 1e6},
    KEYS_END,
};

#define FF HF "feed_forward."

static const struct family_tensor tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.embed_tokens.weight"}},
    {TENSOR_OUTPUT_NORM, false, {"token_embd_norm.weight", "output_norm.weight"},
     {"model.embedding_norm.weight"}},
    {TENSOR_HEAD, false, {"output.weight"}, {"lm_head.weight"}},
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, {HF "operator_norm.weight"}},
    {TENSOR_EXPERT_NORM, false, {"blk.%l.ffn_norm.weight"}, {HF "ffn_norm.weight"}},
    {TENSOR_Q, false, {"blk.%l.attn_q.weight"}, {HF "self_attn.q_proj.weight"}},
    {TENSOR_K, false, {"blk.%l.attn_k.weight"}, {HF "self_attn.k_proj.weight"}},
    {TENSOR_V, false, {"blk.%l.attn_v.weight"}, {HF "self_attn.v_proj.weight"}},
    {TENSOR_O, TENSOR_BIAS | TENSOR_BY_MIXER,
     {"blk.%l.attn_output.weight", "blk.%l.shortconv.out_proj.weight"},
     {HF "self_attn.out_proj.weight", HF "conv.out_proj.weight"}},
    {TENSOR_Q_NORM, false, {"blk.%l.attn_q_norm.weight"}, {HF "self_attn.q_layernorm.weight"}},
    {TENSOR_K_NORM, false, {"blk.%l.attn_k_norm.weight"}, {HF "self_attn.k_layernorm.weight"}},
    {TENSOR_MIX_IN, true, {"blk.%l.shortconv.in_proj.weight"}, {HF "conv.in_proj.weight"}},
    {TENSOR_CONV, true, {"blk.%l.shortconv.conv.weight"}, {HF "conv.conv.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {FF "gate.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias"}, {FF "expert_bias"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {FF "experts.%e.w1.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {FF "experts.%e.w3.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {FF "experts.%e.w2.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {FF "experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {NULL}, {FF "experts.gate_up_proj"}},
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, {FF "w1.weight"}},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, {FF "w3.weight"}},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, {FF "w2.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const struct family_rename renamed[] = {{"conv_L_cache", "shortconv.l_cache"}, {NULL, NULL}};

static const char *const stops[] = {"<|im_end|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape convolution = {.kind = MIXER_SHORT_CONVOLUTION,
                                            .rope = ROPE_NONE,
                                            .heads = 1,
                                            .value_dim = hp->hidden,
                                            .bias = describe_flag(d, "conv_bias", false),
                                            .taps = describe_int(d, "conv_L_cache", 3, 1, 16)};
    bool biased = describe_flag(d, "use_expert_bias", true),
         listed = describe_per_layer(d, hp, "layer_types");

    if (!listed && !describe_is_gguf(d))
        describe_refuse(d, "its config.json has no layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (listed ? describe_listed(d, "layer_types", l, "conv")
                   : describe_has(d, TENSOR_MIX_IN, l))
            s->mixer = convolution;
        if (s->ffn.kind == FFN_ROUTED)
            s->ffn.router.choice_bias = biased && (!describe_is_gguf(d) ||
                                                   describe_has(d, TENSOR_ROUTER_BIAS, l));
    }
}

/* The width that the code derives from intermediate_size, if no tensors show it (Lfm2MLP). */
static int dense_width(struct describer *d)
{
    int width = describe_int(d, "intermediate_size", 0, 1, 1 << 20),
        of = describe_int(d, "block_multiple_of", 256, 1, 1 << 16);

    width = describe_int(d, "block_ff_dim", width, 1, 1 << 20);
    if (!describe_flag(d, "block_auto_adjust_ff_dim", true))
        return width;
    width = (int)(describe_float(d, "block_ffn_dim_multiplier", 1.0f) * (float)(2 * width / 3));
    return (width + of - 1) / of * of;
}

static void dense_layers(struct hparams *hp, struct describer *d)
{
    layers(hp, d);
    for (int l = 0; l < hp->n_layers; l++)
        if (!describe_has(d, TENSOR_DENSE_DOWN, l))
            describe_dense(&hp->layers[l].ffn, dense_width(d));
}

#define OF_BOTH                                                                                   \
    .exported = true, .keys = keys, .tensors = tensors, .renamed = renamed, .theta_unsaid = 1e6f, \
    ROPE_NAMES, .stops = stops

const struct family family_lfm2 = {
    .name = "lfm2",
    .gguf = {"lfm2"},
    .json = {"Lfm2ForCausalLM", "lfm2"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD}, .norms = {.kind = NORM_RMS, .before = true}},
    .layers = dense_layers,
    .tied_unsaid = true,
    OF_BOTH,
};

const struct family family_lfm2_moe = {
    .name = "lfm2_moe",
    .gguf = {"lfm2moe"},
    .json = {"Lfm2MoeForCausalLM", "lfm2_moe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .floor = 1e-6f}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .layers = layers,
    .normalised = "norm_topk_prob",
    OF_BOTH,
};
