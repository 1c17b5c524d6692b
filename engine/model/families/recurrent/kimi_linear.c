/* Family kimi_linear (Moonshot's Kimi Linear, 48B-A3B): Kimi delta attention, whose decays and
 * gates come through thin matrices, every few layers latent attention without positions; sigmoid
 * scores with a bias for the choice, a shared expert, the first layers dense. Names and sums after
 * modeling_kimi_linear.py (Hugging Face), in files as published too, and llama.cpp's
 * src/models/kimi-linear.cpp and conversion/kimi_linear.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"routed_scaling_factor"}, 2.446, 1e-6, 1e6},
    {FIELD(common.ffn.router.groups), KEY_INT, {"expert_group_count"},
     {"num_expert_group", "n_group"}, 1, 1, 512},
    {FIELD(common.ffn.router.groups_used), KEY_INT, {"expert_group_used_count"}, {"topk_group"},
     1, 1, 512},
    KEYS_LATENT,
    KEYS_END,
};

#define AT HF "self_attn."
#define MLP(name) {HF "block_sparse_moe." name, HF "mlp." name}

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_LATENT,
    {TENSOR_K, false, {"blk.%l.attn_k.weight"}, {AT "k_proj.weight"}},
    {TENSOR_V, false, {"blk.%l.attn_v.weight"}, {AT "v_proj.weight"}},
    {TENSOR_MIX_A_IN, false, {"blk.%l.ssm_f_a.weight"},
     {AT "f_a_proj.weight", AT "forget_gate.f_a_proj.weight"}},
    {TENSOR_MIX_A, false, {"blk.%l.ssm_f_b.weight"},
     {AT "f_b_proj.weight", AT "forget_gate.f_b_proj.weight"}},
    {TENSOR_MIX_B, false, {"blk.%l.ssm_beta.weight"}, {AT "b_proj.weight"}},
    {TENSOR_MIX_Z_IN, false, {"blk.%l.ssm_g_a.weight"}, {AT "g_a_proj.weight"}},
    {TENSOR_MIX_Z, false, {"blk.%l.ssm_g_b.weight"}, {AT "g_b_proj.weight"}},
    {TENSOR_CONV_Q, false, {"blk.%l.ssm_conv1d_q.weight"}, {AT "q_conv1d.weight"}},
    {TENSOR_CONV_K, false, {"blk.%l.ssm_conv1d_k.weight"}, {AT "k_conv1d.weight"}},
    {TENSOR_CONV_V, false, {"blk.%l.ssm_conv1d_v.weight"}, {AT "v_conv1d.weight"}},
    {TENSOR_DECAY, false, {"blk.%l.ssm_a"}, {AT "A_log", AT "forget_gate.A_log"}},
    {TENSOR_DT_BIAS, false, {"blk.%l.ssm_dt.bias"}, {AT "dt_bias", AT "forget_gate.dt_bias"}},
    {TENSOR_MIX_NORM, false, {"blk.%l.ssm_norm.weight"}, {AT "o_norm.weight"}},
    TENSORS_EXPERTS_BLOCK,
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     MLP("gate.e_score_correction_bias")},
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"},
     MLP("shared_experts.gate_proj.weight")},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     MLP("shared_experts.up_proj.weight")},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     MLP("shared_experts.down_proj.weight")},
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, MLP("gate_proj.weight")},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, MLP("up_proj.weight")},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, MLP("down_proj.weight")},
    TENSORS_END,
};
/* clang-format on */

#define LINEAR "linear_attn_config."

static const struct family_rename renamed[] = {
    {LINEAR "head_dim", "kda.head_dim"},
    {LINEAR "short_conv_kernel_size", "ssm.conv_kernel"},
    {NULL, NULL},
};

static const char *const stops[] = {"<|im_end|>", "[EOS]", NULL};

/* By the tensors, if there are any; by transformers' list; by the published one, which counts from
 * 1; without lists every fourth but the first. */
static bool is_latent(struct describer *d, int layer)
{
    if (describe_has(d, TENSOR_ATTENTION_NORM, layer))
        return describe_has(d, TENSOR_KV_A, layer);
    if (family_config(d->f, "layer_types").type == META_ARRAY)
        return describe_listed(d, "layer_types", layer, "full_attention");
    if (family_config(d->f, LINEAR "full_attn_layers").type == META_ARRAY)
        return describe_numbered(d, LINEAR "full_attn_layers", layer + 1);
    return layer && layer % 4 == 0;
}

/* Settings that published code has and the official class does not: as they are in published
 * files. */
static void check_settings(struct describer *d)
{
    static const char *const scores[] = {"sigmoid", NULL};

    describe_only(d, "moe_router_activation_func", scores);
    if (!describe_flag(d, "mla_use_nope", true))
        describe_refuse(d, "mla_use_nope of its config.json is false, which is not computed");
}

static void layers(struct hparams *hp, struct describer *d)
{
    int heads = describe_int(d, "linear_num_heads", hp->common.mixer.heads, 1, 4096),
        dim = describe_int(d, "linear_head_dim", 128, 1, 4096),
        taps = describe_int(d, "linear_conv_kernel_dim", 4, 1, 16);
    struct mixer_shape kimi = {.kind = MIXER_KIMI_DELTA, .rope = ROPE_NONE, .gated = true};

    heads = describe_int(d, LINEAR "num_heads", heads, 1, 4096);
    dim = describe_int(d, LINEAR "head_dim", dim, 1, 4096);
    kimi.heads = kimi.kv_heads = heads;
    kimi.key_dim = kimi.value_dim = kimi.a_rank = kimi.z_rank = dim;
    kimi.taps = describe_int(d, LINEAR "short_conv_kernel_size", taps, 1, 16);
    check_settings(d);
    (void)describe_per_layer(d, hp, "layer_types");
    (void)describe_per_layer(d, hp, "mlp_layer_types");
    if (!describe_is_gguf(d))
        describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (!is_latent(d, l))
            s->mixer = kimi;
        else if (describe_has(d, TENSOR_Q, l))
            s->mixer.q_rank = 0;
    }
}

const struct family family_kimi_linear = {
    .name = "kimi_linear",
    .gguf = {"kimi-linear"},
    .exported = true,
    .json = {"KimiLinearForCausalLM", "kimi_linear"},
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_NONE, .latent_eps = 1e-6f},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_NONE,
    .gguf_minus_decay = true,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .normalised = "moe_renormalize",
    .tied = "tie_word_embeddings",
    .stops = stops,
};
