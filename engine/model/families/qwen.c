/* Families qwen2_moe (Qwen1.5-MoE, Qwen2-57B-A14B), qwen3 (dense) and qwen3_moe (Qwen3-30B-A3B).
 * Names after modeling_qwen2_moe.py, modeling_qwen3.py, modeling_qwen3_moe.py (Hugging Face) and
 * llama.cpp's gguf-py/gguf/constants.py. Their windows count only where use_sliding_window says so,
 * which no published model does. Constant data. */
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
/* clang-format on */

static const char *const none[] = {NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};
static const char *const unsupported[] = {"use_sliding_window", NULL};

const struct family family_qwen2_moe = {
    .name = "qwen2_moe",
    .gguf = {"qwen2moe"},
    .json = {"Qwen2MoeForCausalLM", "qwen2_moe"},
    .shape = {.ffn = {.shared_gate = SHARED_SIGMOID, .router = {.kind = ROUTER_SOFTMAX}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = qwen2_tensors,
    .normalised = "norm_topk_prob",
    .unsupported = unsupported,
    ROPE_NAMES,
    .ignored = none,
    .stops = stops,
};

#define QWEN3_SHAPE(norm) \
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD}, \
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = norm}}, \
              .norms = {.kind = NORM_RMS, .before = true}}

const struct family family_qwen3 = {
    .name = "qwen3",
    .gguf = {"qwen3"},
    .json = {"Qwen3ForCausalLM", "qwen3"},
    QWEN3_SHAPE(false),
    .keys = keys,
    .tensors = qwen3_tensors,
    .unsupported = unsupported,
    ROPE_NAMES,
    .ignored = none,
    .stops = stops,
};

const struct family family_qwen3_moe = {
    .name = "qwen3_moe",
    .gguf = {"qwen3moe"},
    .json = {"Qwen3MoeForCausalLM", "qwen3_moe"},
    QWEN3_SHAPE(true),
    .keys = keys,
    .tensors = qwen3_tensors,
    .normalised = "norm_topk_prob",
    .unsupported = unsupported,
    ROPE_NAMES,
    .ignored = none,
    .stops = stops,
};
