/* Family afmoe: Arcee's Trinity (Nano 6B-A1B, Mini 26B-A3B, Large). Layers with a window are
 * rotated, every fourth sees all without positions; attention is gated; norms stand before and
 * after both operators; sigmoid scores with a bias for the choice, one shared expert, the first
 * layers dense. Names and sums after modeling_afmoe.py (Hugging Face) and llama.cpp's
 * src/models/afmoe.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"}, {"route_scale"},
     1.0, 1e-6, 1e6},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    {TENSOR_MIX_Z, false, {"blk.%l.attn_gate.weight"}, {HF "self_attn.gate_proj.weight"}},
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_ATTENTION_AFTER, false, {"blk.%l.post_attention_norm.weight"},
     {HF "post_attention_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, false, {"blk.%l.ffn_norm.weight"}, {HF "pre_mlp_layernorm.weight"}},
    {TENSOR_EXPERT_AFTER, false, {"blk.%l.post_ffw_norm.weight"},
     {HF "post_mlp_layernorm.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {HF "mlp.router.gate.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "mlp.expert_bias"}},
    TENSORS_EXPERTS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|im_end|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    static const char *const scores[] = {"sigmoid", NULL};
    int period = describe_int(d, "global_attn_every_n_layers", 4, 1, 1024);

    describe_only(d, "score_func", scores);
    describe_only_number(d, "n_group", 1.0);
    if (!describe_is_gguf(d) && !describe_flag(d, "route_norm", true))
        describe_refuse(d,
                        "route_norm of its config.json is false, which its official code ignores");
    if (describe_is_gguf(d) || describe_flag(d, "mup_enabled", false))
        hp->embedding_scale = sqrtf((float)hp->hidden);
    (void)describe_per_layer(d, hp, "layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        if (describe_windowed(d, l, period, false))
            continue;
        m->window = m->rope_dims = 0;
        m->rope = ROPE_NONE;
    }
}

const struct family family_afmoe = {
    .name = "afmoe",
    .gguf = {"afmoe"},
    .exported = true,
    .json = {"AfmoeForCausalLM", "afmoe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .gated = true, .gate = GATE_APART},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true, .after = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .normalised = "route_norm",
    ROPE_NAMES,
    .stops = stops,
};
