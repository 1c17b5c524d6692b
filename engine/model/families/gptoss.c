/* Family gpt_oss: learned sinks, a window in every other layer, experts with biases. Names after
 * modeling_gpt_oss.py (Hugging Face). Described, not computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {NULL}, {"sliding_window"}, 0, 0, 1 << 27},
    KEYS_END,
};
/* clang-format on */

static const char *const none[] = {NULL};
static const char *const stops[] = {"<|return|>", "<|call|>", NULL};

/* Without a list even layers have the window. */
static void layers(struct hparams *hp, struct describer *d)
{
    bool listed = describe_per_layer(d, hp, "layer_types");

    for (int l = 0; l < hp->n_layers; l++)
        if (listed ? !describe_listed(d, "layer_types", l, "sliding_attention") : l % 2)
            hp->layers[l].mixer.window = 0;
}

const struct family family_gpt_oss = {
    .name = "gpt_oss",
    .json = {"GptOssForCausalLM", "gpt_oss"},
    .shape = {.mixer = {.bias = true, .sinks = true},
              .ffn = {.activation = ACTIVATION_CLAMPED_SWIGLU,
                      .bias = true,
                      .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .layers = layers,
    ROPE_NAMES,
    .ignored = none,
    .stops = stops,
};
