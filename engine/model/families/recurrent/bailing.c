/* Family bailing_hybrid (Ling 3): Kimi delta attention, every few layers latent attention with a
 * gate a head. Names after modeling_bailing_hybrid.py (Hugging Face) and llama.cpp's
 * gguf-py/gguf/constants.py, where it is bailingmoe3. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_LATENT,
    KEYS_END,
};

#define AT HF "attention."

static const struct family_tensor tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.word_embeddings.weight"}},
    {TENSOR_OUTPUT_NORM, false, {"output_norm.weight"}, {"model.norm.weight"}},
    {TENSOR_HEAD, false, {"output.weight"}, {"lm_head.weight"}},
    TENSORS_NORMS,
    {TENSOR_Q, false, {"blk.%l.attn_q.weight"}, {AT "q_proj.weight"}},
    {TENSOR_K, false, {"blk.%l.attn_k.weight"}, {AT "k_proj.weight"}},
    {TENSOR_V, false, {"blk.%l.attn_v.weight"}, {AT "v_proj.weight"}},
    {TENSOR_O, false, {"blk.%l.attn_output.weight"}, {AT "dense.weight", AT "o_proj.weight"}},
    {TENSOR_MIX_A, false, {"blk.%l.ssm_f_a.weight"}, {AT "f_proj.weight"}},
    {TENSOR_MIX_B, false, {"blk.%l.ssm_beta.weight"}, {AT "b_proj.weight"}},
    {TENSOR_MIX_Z, TENSOR_BY_MIXER, {"blk.%l.attn_gate.weight", "blk.%l.ssm_g_a.weight"},
     {AT "g_proj.weight"}},
    {TENSOR_CONV_Q, false, {"blk.%l.ssm_conv1d_q.weight"}, {AT "q_conv1d.weight"}},
    {TENSOR_CONV_K, false, {"blk.%l.ssm_conv1d_k.weight"}, {AT "k_conv1d.weight"}},
    {TENSOR_CONV_V, false, {"blk.%l.ssm_conv1d_v.weight"}, {AT "v_conv1d.weight"}},
    {TENSOR_DECAY, false, {"blk.%l.ssm_a"}, {AT "A_log"}},
    {TENSOR_DT_BIAS, false, {"blk.%l.ssm_dt.bias"}, {AT "dt_bias"}},
    {TENSOR_MIX_NORM, false, {"blk.%l.ssm_norm.weight"}, {AT "o_norm.weight"}},
    {TENSOR_Q_A, false, {"blk.%l.attn_q_a.weight"}, {AT "q_a_proj.weight"}},
    {TENSOR_Q_A_NORM, false, {"blk.%l.attn_q_a_norm.weight"}, {AT "q_a_layernorm.weight"}},
    {TENSOR_Q_B, false, {"blk.%l.attn_q_b.weight"}, {AT "q_b_proj.weight"}},
    {TENSOR_KV_A, false, {"blk.%l.attn_kv_a_mqa.weight"}, {AT "kv_a_proj_with_mqa.weight"}},
    {TENSOR_KV_A_NORM, false, {"blk.%l.attn_kv_a_norm.weight"}, {AT "kv_a_layernorm.weight"}},
    {TENSOR_KV_B, false, {"blk.%l.attn_kv_b.weight"}, {AT "kv_b_proj.weight"}},
    {TENSOR_K_B, false, {"blk.%l.attn_k_b.weight"}, {NULL}},
    {TENSOR_V_B, false, {"blk.%l.attn_v_b.weight"}, {NULL}},
    TENSORS_EXPERTS,
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "mlp.gate.expert_bias"}},
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const struct family_rename renamed[] = {{"head_dim", "kda.head_dim"},
                                               {"short_conv_kernel_size", "ssm.conv_kernel"},
                                               {"kda_safe_gate", "kda.safe_gate"},
                                               {"kda_lower_bound", "kda.gate_lower_bound"},
                                               {"score_function", "expert_gating_func"},
                                               {NULL, NULL}};

static const char *const stops[] = {"<|role_end|>", NULL};

/* Unsupported: projections through two thin matrices, a gate of another granularity. */
static void check_settings(struct describer *d)
{
    if (!describe_flag(d, "no_kda_lora", true))
        describe_refuse(d, "no_kda_lora of its config.json is false, which is not computed");
    if (family_config(d->f, "gated_attention_proj_granularity_type").type == META_STRING &&
        !describe_is(d, "gated_attention_proj_granularity_type", "head_wise"))
        describe_refuse(d, "gated_attention_proj_granularity_type of its config.json is not "
                           "head_wise");
}

/* The last layer of each group; decided by the tensors if there are any. */
static bool is_latent(struct describer *d, int layer, int group)
{
    return describe_has(d, TENSOR_ATTENTION_NORM, layer) ? describe_has(d, TENSOR_KV_A, layer)
                                                         : (layer + 1) % group == 0;
}

#define GATING_SIGMOID 2 /* of llama.cpp's expert_gating_func; 1 is softmax */

static bool is_sigmoid(struct describer *d)
{
    return describe_is_gguf(d)
               ? describe_int(d, "score_function", GATING_SIGMOID, 0, 16) == GATING_SIGMOID
               : !describe_is(d, "score_function", "softmax");
}

static void layers(struct hparams *hp, struct describer *d)
{
    int group = describe_int(d, "layer_group_size", 1, 1, 1024), heads = hp->common.mixer.heads,
        dim = describe_int(d, "head_dim", heads ? hp->hidden / heads : 0, 1, 4096);
    bool bias = describe_flag(d, "moe_router_enable_expert_bias", false), sigmoid = is_sigmoid(d);
    const struct mixer_shape kimi = {.kind = MIXER_KIMI_DELTA,
                                     .rope = ROPE_NONE,
                                     .heads = heads,
                                     .kv_heads = heads,
                                     .key_dim = dim,
                                     .value_dim = dim,
                                     .gated = true,
                                     .taps = describe_int(d, "short_conv_kernel_size", 4, 1, 16),
                                     .decay_bound = describe_flag(d, "kda_safe_gate", true)
                                                        ? describe_float(d, "kda_lower_bound",
                                                                         -5.0f)
                                                        : 0.0f};

    check_settings(d);
    if (!describe_is_gguf(d))
        describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (!is_latent(d, l, group))
            s->mixer = kimi;
        else if (describe_has(d, TENSOR_Q, l))
            s->mixer.q_rank = 0; /* whatever q_lora_rank says: its code ignores it */
        if (s->ffn.kind != FFN_ROUTED)
            continue;
        s->ffn.router.choice_bias = bias || describe_has(d, TENSOR_ROUTER_BIAS, l);
        s->ffn.router.kind = sigmoid ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
        /* transformers 5's name of norm_topk_prob */
        s->ffn.router.normalised = describe_flag(d, "moe_renormalize", s->ffn.router.normalised);
    }
}

const struct family family_bailing_hybrid = {
    .name = "bailing_hybrid",
    .gguf = {"bailingmoe3"},
    .exported = true,
    .json = {"BailingMoeV3ForCausalLM", "bailing_hybrid"},
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS, .latent_eps = 1e-6f, .gated = true},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .extra_layers = true,
    .normalised = "norm_topk_prob",
    .theta_unsaid = 6e6f,
    ROPE_NAMES,
    .stops = stops,
};
