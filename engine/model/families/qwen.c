/* Families qwen2 (dense), qwen2_moe (Qwen1.5-MoE, Qwen2-57B-A14B), qwen3 (dense), qwen3_moe
 * (Qwen3-30B-A3B), and the text of qwen3_vl and qwen3_vl_moe, which count positions of a text once.
 * Names after modeling_qwen2.py, modeling_qwen2_moe.py, modeling_qwen3.py, modeling_qwen3_moe.py,
 * modeling_qwen3_vl.py and modeling_qwen3_vl_moe.py (Hugging Face) and
 * llama.cpp's gguf-py/gguf/constants.py. Their windows count only where use_sliding_window says so,
 * which no published model does; each family then has them in other layers. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_END,
};

static const struct family_tensor qwen2_tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};

static const struct family_tensor qwen3_tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_DENSE,
    TENSORS_END,
};

/* Experts are stored transposed on the Hub, and untransposed by transformers 5. */
static const struct family_tensor vl_moe_tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {HF "mlp.gate.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, TENSOR_TRANSPOSED | TENSOR_EITHER, {"blk.%l.ffn_down_exps.weight"},
     {HF "mlp.experts.down_proj"}},
    {TENSOR_GATE_UPS, TENSOR_TRANSPOSED | TENSOR_EITHER, {"blk.%l.ffn_gate_up_exps.weight"},
     {HF "mlp.experts.gate_up_proj"}},
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const towers[] = {"model.visual.*", "visual.*", NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

enum windows { WINDOWS_ALL, WINDOWS_EVEN, WINDOWS_LAST };

/* Without a list: all layers, every second of the first, those after the first
 * (configuration_qwen2_moe.py, configuration_qwen3.py, modeling_qwen3_moe.py). */
static void set_windows(struct hparams *hp, struct describer *d, enum windows which)
{
    int window, most;
    bool listed;

    if (describe_is_gguf(d) || !describe_flag(d, "use_sliding_window", false))
        return;
    window = describe_int(d, "sliding_window", 4096, 1, 1 << 27);
    most = describe_int(d, "max_window_layers", 28, 0, 1024);
    listed = which != WINDOWS_ALL && describe_per_layer(d, hp, "layer_types");
    for (int l = 0; l < hp->n_layers; l++)
        if (listed                  ? describe_listed(d, "layer_types", l, "sliding_attention")
            : which == WINDOWS_EVEN ? l % 2 == 0 && l < most
                                    : which == WINDOWS_ALL || l >= most)
            hp->layers[l].mixer.window = window;
}

static void qwen2_moe_layers(struct hparams *hp, struct describer *d)
{
    set_windows(hp, d, WINDOWS_EVEN);
}

static void qwen3_layers(struct hparams *hp, struct describer *d)
{
    set_windows(hp, d, WINDOWS_LAST);
}

static void qwen3_moe_layers(struct hparams *hp, struct describer *d)
{
    set_windows(hp, d, WINDOWS_ALL);
}

const struct family family_qwen2 = {
    .name = "qwen2",
    .gguf = {"qwen2"},
    .exported = true,
    .json = {"Qwen2ForCausalLM", "qwen2"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = qwen2_tensors,
    .layers = qwen3_layers,
    ROPE_NAMES,
    .stops = stops,
};

const struct family family_qwen2_moe = {
    .name = "qwen2_moe",
    .gguf = {"qwen2moe"},
    .exported = true,
    .json = {"Qwen2MoeForCausalLM", "qwen2_moe"},
    .shape = {.ffn = {.shared_gate = SHARED_SIGMOID, .router = {.kind = ROUTER_SOFTMAX}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = qwen2_tensors,
    .normalised = "norm_topk_prob",
    .layers = qwen2_moe_layers,
    ROPE_NAMES,
    .stops = stops,
};

/* norm: whether the chosen experts' weights sum to 1 */
#define OF_QWEN3(norm)                                                         \
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},                              \
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = norm}}, \
              .norms = {.kind = NORM_RMS, .before = true}},                    \
    .keys = keys, ROPE_NAMES, .stops = stops

const struct family family_qwen3 = {
    .name = "qwen3",
    .gguf = {"qwen3"},
    .exported = true,
    .json = {"Qwen3ForCausalLM", "qwen3"},
    OF_QWEN3(false),
    .tensors = qwen3_tensors,
    .layers = qwen3_layers,
};

const struct family family_qwen3_moe = {
    .name = "qwen3_moe",
    .gguf = {"qwen3moe"},
    .exported = true,
    .json = {"Qwen3MoeForCausalLM", "qwen3_moe"},
    OF_QWEN3(true),
    .tensors = qwen3_tensors,
    .normalised = "norm_topk_prob",
    .layers = qwen3_moe_layers,
};

/* default_theta of configuration_qwen3_vl.py. norm_topk_prob is not read: weights always sum to 1.
 */
#define OF_VL(norm) \
    OF_QWEN3(norm), .nested = "model.language_model.", .theta_unsaid = 5e5f, .ignored = towers

const struct family family_qwen3_vl = {
    .name = "qwen3_vl",
    .gguf = {"qwen3vl"},
    .json = {"Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text"},
    OF_VL(false),
    .tensors = qwen3_tensors,
};

const struct family family_qwen3_vl_moe = {
    .name = "qwen3_vl_moe",
    .gguf = {"qwen3vlmoe"},
    .json = {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe_text"},
    OF_VL(true),
    .tensors = vl_moe_tensors,
};
