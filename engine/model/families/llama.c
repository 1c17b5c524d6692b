/* Families llama (Llama 2 and 3, and what is like them) and mixtral (the same with experts). Names
 * after modeling_llama.py, modeling_mixtral.py (Hugging Face) and llama.cpp's
 * gguf-py/gguf/constants.py, where both are "llama" and the converter has moved the rows of q and k
 * so that pairs of neighbours are rotated. Constant data. */
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key llama_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    KEYS_END,
};

static const struct family_key mixtral_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS_BLOCK,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.layers.*.self_attn.rotary_emb.inv_freq", NULL};
static const char *const stops[] = {"<|eot_id|>", "<|eom_id|>", NULL};

#define OF_BOTH                                                                \
    .gguf = {"llama"}, .exported = true,                                       \
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}}, \
              .norms = {.kind = NORM_RMS, .before = true}},                    \
    .gguf_rope = ROPE_PAIRS, .tensors = tensors, ROPE_NAMES, .ignored = ignored, .stops = stops

const struct family family_llama = {
    .name = "llama",
    .json = {"LlamaForCausalLM", "llama"},
    .keys = llama_keys,
    OF_BOTH,
};

const struct family family_mixtral = {
    .name = "mixtral",
    .json = {"MixtralForCausalLM", "mixtral"},
    .theta_unsaid = 1e6f,
    .keys = mixtral_keys,
    OF_BOTH,
};
