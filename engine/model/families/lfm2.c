/* Family lfm2_moe: gated short convolutions, some layers of attention, the first feed-forwards
 * dense. Names after modeling_lfm2_moe.py (Hugging Face). Described, not computed. Constant data.
 */
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

static const char *const none[] = {NULL};
static const char *const stops[] = {"<|im_end|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape convolution = {.kind = MIXER_SHORT_CONVOLUTION,
                                            .rope = ROPE_NONE,
                                            .heads = 1,
                                            .value_dim = hp->hidden,
                                            .bias = describe_flag(d, "conv_bias", false),
                                            .taps = describe_int(d, "conv_L_cache", 3, 1, 64)};
    bool biased = describe_flag(d, "use_expert_bias", true);

    if (!describe_per_layer(d, hp, "layer_types"))
        describe_refuse(d, "its config.json has no layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (describe_listed(d, "layer_types", l, "conv"))
            s->mixer = convolution;
        if (s->ffn.kind == FFN_ROUTED)
            s->ffn.router.choice_bias = biased;
    }
}

const struct family family_lfm2_moe = {
    .name = "lfm2_moe",
    .json = {"Lfm2MoeForCausalLM", "lfm2_moe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = none,
    .stops = stops,
};
