/* Families dots1 (rednote's dots.llm1, 142B-A14B) and hy_v3 (Tencent's Hy3, 30B-A3B and larger).
 * Sigmoid scores with a bias for the choice, from the best groups where there are any; shared
 * experts, the first layers dense; some layers of dots1 may have a window. hy_v3's block that
 * predicts further tokens is left out, as its official code does. Names and sums after
 * modeling_dots1.py and modeling_hy_v3.py (Hugging Face), in the first published files too, and
 * llama.cpp's src/models/dots1.cpp and hy-v3.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    {FIELD(common.mixer.window), KEY_INT, {NULL}, {"sliding_window"}, 0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_ROUTER_BIAS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};

static const struct family_key hy_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"router_scaling_factor"}, 2.826, 1e-6, 1e6},
    KEYS_END,
};

static const struct family_tensor hy_tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    /* the one family whose bias llama.cpp's loader wants without a suffix */
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b", "blk.%l.exp_probs_b.bias"},
     {HF "mlp.e_score_correction_bias", HF "mlp.expert_bias"}},
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"},
     {HF "mlp.shared_experts.gate_proj.weight", HF "mlp.shared_mlp.gate_proj.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     {HF "mlp.shared_experts.up_proj.weight", HF "mlp.shared_mlp.up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     {HF "mlp.shared_experts.down_proj.weight", HF "mlp.shared_mlp.down_proj.weight"}},
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|endofresponse|>", NULL};

/* Files of llama.cpp's converter have no windows, and may lack the bias. */
static void layers(struct hparams *hp, struct describer *d)
{
    bool listed = describe_per_layer(d, hp, "layer_types");
    int first = describe_int(d, "max_window_layers", 62, 0, 1024);

    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (listed ? !describe_listed(d, "layer_types", l, "sliding_attention") : l < first)
            s->mixer.window = 0;
        if (describe_is_gguf(d) && s->ffn.kind == FFN_ROUTED)
            s->ffn.router.choice_bias = describe_has(d, TENSOR_ROUTER_BIAS, l);
    }
}

const struct family family_dots1 = {
    .name = "dots1",
    .gguf = {"dots1"},
    .exported = true,
    .json = {"Dots1ForCausalLM", "dots1"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .stops = stops,
};

static const char *const hy_stops[] = {"<|hy_eos|>", "<｜hy_eos:opensource｜>", NULL};

/* Without a list the first layer is dense. */
static void hy_layers(struct hparams *hp, struct describer *d)
{
    if (!describe_flag(d, "qk_norm", true) || !describe_flag(d, "moe_router_use_sigmoid", true))
        describe_refuse(d, "qk_norm or moe_router_use_sigmoid of its config.json is false, which "
                           "is not computed for hy_v3");
    if (!describe_is_gguf(d) && !describe_flag(d, "route_norm", true))
        describe_refuse(d,
                        "route_norm of its config.json is false, which its official code ignores");
    (void)describe_per_layer(d, hp, "mlp_layer_types");
}

const struct family family_hy_v3 = {
    .name = "hy_v3",
    .gguf = {"hy_v3"},
    .exported = true,
    .json = {"HYV3ForCausalLM", "hy_v3"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .extra_layers = true,
    .theta_unsaid = 11158840.0f,
    .keys = hy_keys,
    .tensors = hy_tensors,
    .layers = hy_layers,
    .normalised = "route_norm",
    ROPE_NAMES,
    .stops = hy_stops,
};
