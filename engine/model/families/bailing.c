/* Family bailing_hybrid (Ling 3): Kimi delta attention, every few layers latent attention with a
 * gate a head. Names after modeling_bailing_hybrid.py (Hugging Face). Described, not computed.
 * Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_LATENT,
    {FIELD(common.mixer.taps), KEY_INT, {NULL}, {"short_conv_kernel_size"}, 4, 1, 64},
    KEYS_END,
};
/* clang-format on */

static const char *const none[] = {NULL};

/* The last layer of each group has latent attention. */
static void layers(struct hparams *hp, struct describer *d)
{
    int group = describe_int(d, "layer_group_size", 1, 1, 1024),
        dim = describe_int(d, "head_dim", hp->common.mixer.key_dim, 1, 4096);
    bool bias = describe_flag(d, "moe_router_enable_expert_bias", false),
         sigmoid = !describe_is(d, "score_function", "softmax");
    const struct mixer_shape kimi = {.kind = MIXER_KIMI_DELTA,
                                     .rope = ROPE_NONE,
                                     .heads = hp->common.mixer.heads,
                                     .kv_heads = hp->common.mixer.heads,
                                     .key_dim = dim,
                                     .value_dim = dim,
                                     .gated = true,
                                     .taps = hp->common.mixer.taps};

    describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        s->mixer.taps = 0;
        if ((l + 1) % group)
            s->mixer = kimi;
        if (s->ffn.kind != FFN_ROUTED)
            continue;
        s->ffn.router.choice_bias = bias;
        s->ffn.router.kind = sigmoid ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    }
}

const struct family family_bailing_hybrid = {
    .name = "bailing_hybrid",
    .json = {"BailingMoeV3ForCausalLM", "bailing_hybrid"},
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS, .gated = true},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = none,
    .stops = none,
};
