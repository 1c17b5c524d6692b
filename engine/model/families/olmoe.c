/* Family olmoe: AllenAI OLMoE. Names after modeling_olmoe.py (Hugging Face) and llama.cpp's
 * gguf-py/gguf/constants.py. q and k are normed over all heads together. Constant data. */
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_experts"}, 0, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 8, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"intermediate_size"}, 0, 1, 1 << 20},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|endoftext|>", "|||IP_ADDRESS|||", NULL};
static const char *const unsupported[] = {"clip_qkv", "olmoe.attention.clamp_kqv", NULL};

const struct family family_olmoe = {
    .name = "olmoe",
    .gguf = {"olmoe"},
    .exported = true,
    .json = {"OlmoeForCausalLM", "olmoe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_WHOLE},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .normalised = "norm_topk_prob",
    .unsupported = unsupported,
    ROPE_NAMES,
    .stops = stops,
};
