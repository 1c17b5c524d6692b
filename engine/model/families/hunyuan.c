/* Family hunyuan_v1_moe (Tencent's Hunyuan-A13B, 80B-A13B): heads of q and k are normed behind
 * their rotation; a shared expert. Names and sums after modeling_hunyuan_v1_moe.py (Hugging Face)
 * and llama.cpp's src/models/hunyuan-moe.cpp and conversion/hunyuan.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_experts"}, 0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"moe_topk", "num_experts_per_tok"},
     1, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"}, {"intermediate_size"},
     0, 1, 1 << 20},
    KEYS_END,
};

#define EXPERT(name) HF "mlp.experts.%e." name

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    {TENSOR_Q_NORM, false, {"blk.%l.attn_q_norm.weight"}, {HF "self_attn.query_layernorm.weight"}},
    {TENSOR_K_NORM, false, {"blk.%l.attn_k_norm.weight"}, {HF "self_attn.key_layernorm.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {HF "mlp.gate.wg.weight"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {EXPERT("gate_proj.weight")}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {EXPERT("up_proj.weight")}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {EXPERT("down_proj.weight")}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {HF "mlp.experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, {HF "mlp.experts.gate_up_proj"}},
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"},
     {HF "mlp.shared_mlp.gate_proj.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     {HF "mlp.shared_mlp.up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     {HF "mlp.shared_mlp.down_proj.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|eos|>", "<|endoftext|>", NULL};

/* NTK scaling by a fixed alpha, which the files call dynamic: another base. */
static void read_alpha(struct hparams *hp, struct describer *d)
{
    float alpha = describe_float(d, "rope_parameters.alpha",
                                 describe_float(d, "rope_scaling.alpha", 0.0f));
    double dims = hp->common.mixer.key_dim;

    if (describe_is_gguf(d) || !hp->rope_within || !(alpha > 0.0f) || dims < 4)
        return;
    hp->rope_theta = (float)((double)hp->rope_theta * pow((double)alpha, dims / (dims - 2)));
    hp->rope_within = false;
}

static void layers(struct hparams *hp, struct describer *d)
{
    read_alpha(hp, d);
    describe_never(d, "use_cla");
    for (int l = 0; l < hp->n_layers; l++) {
        struct ffn_shape *s = &hp->layers[l].ffn;

        if (!describe_has(d, TENSOR_ATTENTION_NORM, l))
            describe_shared(s, s->width * describe_int_at(d, "num_shared_expert", l, 1));
    }
}

const struct family family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .gguf = {"hunyuan-moe"},
    .exported = true,
    .json = {"HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .qk_norm_turned = true},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .stops = stops,
};
