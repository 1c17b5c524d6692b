/* Family ernie4_5_moe: Baidu ERNIE 4.5 (text). Names after modeling_ernie4_5_moe.py (Hugging Face)
 * and llama.cpp's gguf-py/gguf/constants.py. A bias takes part in the choice of experts alone; its
 * shared experts lie in the file as one. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"moe_num_experts"}, 0, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"moe_k"}, 0, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"},
     {"moe_intermediate_size"}, 0, 1, 1 << 20},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS,
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias"},
     {HF "mlp.moe_statics.e_score_correction_bias",
      HF "mlp.gate.moe_statics.e_score_correction_bias"}},
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.mtp_*", NULL};
static const char *const stops[] = {"</s>", "<|end_of_sentence|>", NULL};
static const char *const unsupported[] = {"use_bias", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    describe_only_number(d, "moe_norm_min", 1e-12);
}

const struct family family_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .gguf = {"ernie4_5-moe"},
    .exported = true,
    .json = {"Ernie4_5_MoeForCausalLM", "ernie4_5_moe"},
    .shape = {.mixer = {.rope = ROPE_PAIRS},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .unsupported = unsupported,
    .theta_unsaid = 5e5f,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
