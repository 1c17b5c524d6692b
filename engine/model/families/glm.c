/* Families glm4_moe (GLM-4.5) and solar_open (Upstage's Solar Open 100B: the same without norms of
 * q and k, whole heads rotated, which GGUF calls glm4moe). Names after modeling_glm4_moe.py and
 * modeling_solar_open.py (Hugging Face) and llama.cpp's gguf-py/gguf/constants.py. Sigmoid scores
 * with a bias for the choice; the layers behind the last one predict further tokens and are not
 * computed. Constant data. */
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, true, {"blk.%l.post_attention_norm.weight",
     "blk.%l.ffn_norm.weight"}, {HF "post_attention_layernorm.weight"}},
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_ROUTER_BIAS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_MTP,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|endoftext|>", "<|user|>", "<|observation|>", NULL};

const struct family family_glm4_moe = {
    .name = "glm4_moe",
    .gguf = {"glm4moe"},
    .exported = true,
    .json = {"Glm4MoeForCausalLM", "glm4_moe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .qk_norm_optional = true,
    .part_unsaid = 0.5f,
    .extra_layers = true,
    .keys = keys,
    .tensors = tensors,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .stops = stops,
};

static const char *const solar_stops[] = {"<|endoftext|>", "<|flush|>", "<|end|>", "<|calls|>",
                                          NULL};

const struct family family_solar_open = {
    .name = "solar_open",
    .exported = true,
    .exported_as = &family_glm4_moe,
    .json = {"SolarOpenForCausalLM", "solar_open"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .part_unsaid = 1.0f,
    .theta_unsaid = 1000000.0f,
    .keys = keys,
    .tensors = tensors,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .stops = solar_stops,
};
