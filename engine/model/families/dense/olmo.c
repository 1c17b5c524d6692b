/* Families olmo2 (dense, 1B to 32B), olmo3 (windows in three of four layers; GGUF calls both olmo2)
 * and flex_olmo (olmo2 with routed experts): norms of whole q and k and of the operators' outputs,
 * none before them. Names and sums after modeling_olmo2.py, modeling_olmo3.py and
 * modeling_flex_olmo.py (Hugging Face) and llama.cpp's src/models/olmo2.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
#define KEYS_OLMO_EPS \
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"}, \
     1e-5, 1e-12, 1.0}

static const struct family_key keys[] = {
    KEYS_SIZES,
    KEYS_POSITIONS,
    KEYS_OLMO_EPS,
    KEYS_END,
};

static const struct family_key windowed_keys[] = {
    KEYS_SIZES,
    KEYS_POSITIONS_TWO(500000.0),
    KEYS_OLMO_EPS,
    KEYS_END,
};

static const struct family_key flex_keys[] = {
    KEYS_SIZES,
    KEYS_POSITIONS,
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_experts", "num_local_experts"},
     7, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 5, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"intermediate_size"}, 0, 1, 1 << 20},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    RENAMED_WINDOWS,
    {NULL, NULL},
};

#define TENSORS_OLMO \
    TENSORS_ENDS, \
    TENSORS_ATTENTION, \
    TENSORS_QK_NORM, \
    {TENSOR_ATTENTION_AFTER, false, {"blk.%l.post_attention_norm.weight"}, \
     {HF "post_attention_layernorm.weight"}}, \
    {TENSOR_EXPERT_AFTER, false, {"blk.%l.post_ffw_norm.weight"}, \
     {HF "post_feedforward_layernorm.weight"}}

static const struct family_tensor tensors[] = {
    TENSORS_OLMO,
    TENSORS_DENSE,
    TENSORS_END,
};

static const struct family_tensor flex_tensors[] = {
    TENSORS_OLMO,
    TENSORS_EXPERTS,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|endoftext|>", "<|im_end|>", NULL};
static const char *const unsupported[] = {"clip_qkv", NULL};

static void windowed_layers(struct hparams *hp, struct describer *d)
{
    describe_two_ropes(hp, d, 4, false);
}

#define SHAPE_OLMO \
    .mixer = {.qk_norm = QK_NORM_WHOLE}, .norms = {.kind = NORM_RMS, .after = true, .outputs = true}

const struct family family_olmo3 = {
    .name = "olmo3",
    .gguf = {"olmo2"},
    .exported = true,
    .json = {"Olmo3ForCausalLM", "olmo3"},
    .shape = {SHAPE_OLMO},
    .keys = windowed_keys,
    .tensors = tensors,
    .layers = windowed_layers,
    .renamed = renamed,
    ROPE_NAMES_TWO,
    .unsupported = unsupported,
    .stops = stops,
};

/* config.json alone: GGUF's olmo2 is read above. */
const struct family family_olmo2 = {
    .name = "olmo2",
    .exported = true,
    .exported_as = &family_olmo3,
    .json = {"Olmo2ForCausalLM", "olmo2"},
    .shape = {SHAPE_OLMO},
    .keys = keys,
    .tensors = tensors,
    .unsupported = unsupported,
    ROPE_NAMES,
    .stops = stops,
};

const struct family family_flex_olmo = {
    .name = "flex_olmo",
    .gguf = {"flex-olmo"},
    .exported = true,
    .json = {"FlexOlmoForCausalLM", "flex_olmo"},
    .shape = {SHAPE_OLMO, .ffn = {.router = {.kind = ROUTER_SOFTMAX}}},
    .keys = flex_keys,
    .tensors = flex_tensors,
    .normalised = "norm_topk_prob",
    .unsupported = unsupported,
    .theta_unsaid = 500000.0f,
    ROPE_NAMES,
    .stops = stops,
};
