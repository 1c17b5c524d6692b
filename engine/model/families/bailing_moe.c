/* Families bailing_moe (Ling-lite), bailing_moe_v2 (Ling-mini 2.0, Ling-flash 2.0) and sarvam_moe
 * (the latter with whole heads rotated): grouped-query attention whose q, k and v lie in one
 * matrix. Names after modeling_bailing_moe.py and modeling_bailing_moe_v2.py (inclusionAI),
 * modeling_sarvam_moe.py (Hugging Face) and llama.cpp's gguf-py/gguf/constants.py, where they are
 * bailingmoe and bailingmoe2; its converter moves the rows of q and k of the first. Constant data.
 */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_END,
};

#define AT HF "attention."

static const struct family_tensor tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.word_embeddings.weight",
     "model.embed_tokens.weight"}},
    {TENSOR_OUTPUT_NORM, false, {"output_norm.weight"}, {"model.norm.weight"}},
    {TENSOR_HEAD, false, {"output.weight"}, {"lm_head.weight"}},
    TENSORS_NORMS,
    {TENSOR_QKV, true, {"blk.%l.attn_qkv.weight"}, {AT "query_key_value.weight"}},
    {TENSOR_Q, true, {"blk.%l.attn_q.weight"}, {NULL}},
    {TENSOR_K, true, {"blk.%l.attn_k.weight"}, {NULL}},
    {TENSOR_V, true, {"blk.%l.attn_v.weight"}, {NULL}},
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, {AT "dense.weight"}},
    {TENSOR_Q_NORM, false, {"blk.%l.attn_q_norm.weight"}, {AT "query_layernorm.weight"}},
    {TENSOR_K_NORM, false, {"blk.%l.attn_k_norm.weight"}, {AT "key_layernorm.weight"}},
    TENSORS_EXPERTS,
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "mlp.gate.expert_bias"}},
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|role_end|>", "<|endoftext|>", NULL};

/* Unsupported: a head normed at load time, other routers. */
static void check_settings(struct describer *d, const char *const *scores)
{
    describe_never(d, "norm_head");
    describe_only(d, "score_function", scores);
}

static void layers(struct hparams *hp, struct describer *d)
{
    static const char *const scores[] = {"softmax", NULL};

    (void)hp;
    check_settings(d, scores);
}

/* Weights always sum to 1, except for a single expert's: its code ignores norm_topk_prob. */
static void v2_layers(struct hparams *hp, struct describer *d)
{
    static const char *const scores[] = {"sigmoid", NULL};

    check_settings(d, scores);
    for (int l = 0; l < hp->n_layers; l++) {
        struct router_shape *r = &hp->layers[l].ffn.router;

        if (hp->layers[l].ffn.kind != FFN_ROUTED)
            continue;
        r->choice_bias = describe_has(d, TENSOR_ROUTER_BIAS, l) ||
                         describe_flag(d, "moe_router_enable_expert_bias", false);
        r->normalised = hp->layers[l].ffn.used > 1;
    }
}

const struct family family_bailing_moe = {
    .name = "bailing_moe",
    .gguf = {"bailingmoe"},
    .exported = true,
    .json = {"BailingMoeForCausalLM", "bailing_moe"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .stops = stops,
};

#define OF_V2                                                                          \
    .exported = true,                                                                  \
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},                                      \
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true}},         \
              .norms = {.kind = NORM_RMS, .before = true}},                            \
    .qk_norm_optional = true, .part_unsaid = 1.0f, .extra_layers = true, .keys = keys, \
    .tensors = tensors, .layers = v2_layers, ROPE_NAMES, .stops = stops

const struct family family_bailing_moe_v2 = {
    .name = "bailing_moe_v2",
    .gguf = {"bailingmoe2"},
    .gguf_qkv = true,
    .json = {"BailingMoeV2ForCausalLM", "bailing_moe_v2"},
    OF_V2,
};

const struct family family_sarvam_moe = {
    .name = "sarvam_moe",
    .exported_as = &family_bailing_moe_v2,
    .json = {"SarvamMoEForCausalLM", "sarvam_moe"},
    .theta_unsaid = 8e6f,
    OF_V2,
};
