/* Family jetmoe (JetMoE 8B-A2B, arXiv:2404.07413): attention whose queries and outputs are
 * experts', which a router chooses, with keys and values in common, and routed experts with one
 * bias for all. Names after modeling_jetmoe.py (Hugging Face); in GGUF files, which llama.cpp has
 * none of, those of its other families: heads lie there as one matrix (layer_weights.q). Constant
 * data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#define EPS 1e-6f /* of norms in layers, whatever config.json says: that of the last one */

/* clang-format off */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_key_value_heads"},
     16, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"},
     16, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"kv_channels", "head_dim"},
     128, 2, 1024},
    {FIELD(common.mixer.experts), KEY_INT, {"attention.expert_count"}, {"num_local_experts"},
     8, 1, 512},
    {FIELD(common.mixer.used), KEY_INT, {"attention.expert_used_count"}, {"num_experts_per_tok"},
     2, 1, 16},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    KEYS_POSITIONS,
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_local_experts"}, 8, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 2, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"}, {"intermediate_size"},
     0, 1, 1 << 20},
    KEYS_END,
};

#define HEADS HF "self_attention.experts."

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    {TENSOR_Q, false, {"blk.%l.attn_q.weight"}, {NULL}},
    {TENSOR_K, false, {"blk.%l.attn_k.weight"}, {NULL}},
    {TENSOR_V, false, {"blk.%l.attn_v.weight"}, {NULL}},
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, {NULL}},
    {TENSOR_HEADS_ROUTER, false, {"blk.%l.attn_gate_inp.weight"}, {HEADS "router.layer.weight"}},
    {TENSOR_HEADS_Q, false, {NULL}, {HEADS "input_linear.weight"}},
    {TENSOR_HEADS_O, false, {NULL}, {HEADS "output_linear.weight"}},
    {TENSOR_HEADS_BIAS, false, {NULL}, {HEADS "bias"}},
    {TENSOR_KV, false, {NULL}, {HF "self_attention.kv_proj.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {HF "mlp.router.layer.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_GATE_UPS, false, {NULL}, {HF "mlp.input_linear.weight"}},
    {TENSOR_DOWNS, true, {"blk.%l.ffn_down_exps.weight"}, {HF "mlp.output_linear.weight"}},
    {TENSOR_SUM_BIAS, false, {NULL}, {HF "mlp.bias"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"</s>", NULL};

/* In folders all heads are known by now: config.json states those of one expert. */
static void layers(struct hparams *hp, struct describer *d)
{
    struct mixer_shape *common = &hp->common.mixer;

    if (common->heads != common->kv_heads * common->experts)
        describe_refuse(d, "its %d heads are not %d experts of %d, which jetmoe needs",
                        common->heads, common->experts, common->kv_heads);
    if (common->used > common->experts)
        describe_refuse(d, "a token uses %d of %d experts of attention", common->used,
                        common->experts);
    for (int l = 0; l < hp->n_layers; l++)
        hp->layers[l].norms.eps = EPS;
}

const struct family family_jetmoe = {
    .name = "jetmoe",
    .gguf = {"jetmoe"},
    .exported = true,
    .json = {"JetMoeForCausalLM", "jetmoe"},
    .shape = {.mixer = {.gated = true, .gate = GATE_ROUTED},
              .ffn = {.bias = true, .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .tied_unsaid = true,
    .stops = stops,
};
