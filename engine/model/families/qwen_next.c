/* Families qwen3_next and qwen3_5_moe (alone, or within a model that sees): gated delta nets, every
 * few layers gated attention. Names after modeling_qwen3_next.py and modeling_qwen3_5_moe.py
 * (Hugging Face). Described, not computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_END,
};
/* clang-format on */

static const char *const ignored[] = {"mtp.*", "model.visual.*", NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape net = {.kind = MIXER_DELTA_NET,
                                    .rope = ROPE_NONE,
                                    .heads = describe_int(d, "linear_num_value_heads", 0, 1, 4096),
                                    .kv_heads = describe_int(d, "linear_num_key_heads", 0, 1, 4096),
                                    .key_dim = describe_int(d, "linear_key_head_dim", 0, 1, 4096),
                                    .value_dim = describe_int(d, "linear_value_head_dim", 0, 1,
                                                              4096),
                                    .gated = true,
                                    .taps = describe_int(d, "linear_conv_kernel_dim", 4, 1, 64)};
    int interval = describe_int(d, "full_attention_interval", 4, 1, 1024);
    bool listed = describe_per_layer(d, hp, "layer_types");

    for (int l = 0; l < hp->n_layers; l++)
        if (listed ? describe_listed(d, "layer_types", l, "linear_attention") : (l + 1) % interval)
            hp->layers[l].mixer = net;
}

#define SHAPE                                                                  \
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .gated = true},               \
              .ffn = {.shared_gate = SHARED_SIGMOID,                           \
                      .router = {.kind = ROUTER_SOFTMAX, .normalised = true}}, \
              .norms = {.kind = NORM_RMS_ONE, .before = true}}

const struct family family_qwen3_next = {
    .name = "qwen3_next",
    .json = {"Qwen3NextForCausalLM", "qwen3_next"},
    SHAPE,
    .keys = keys,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};

const struct family family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .json = {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM", "qwen3_5_moe",
             "qwen3_5_moe_text"},
    SHAPE,
    .keys = keys,
    .layers = layers,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
