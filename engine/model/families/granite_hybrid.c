/* Family granitemoehybrid (Granite 4): Mamba 2, a few layers of attention, most without positions;
 * a shared expert. Names after modeling_granitemoehybrid.py (Hugging Face). Described, not
 * computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    KEYS_MULTIPLIERS,
    KEYS_END,
};
/* clang-format on */

static const char *const none[] = {NULL};
static const char *const stops[] = {"<|end_of_text|>", NULL};

/* "mamba" on the Hub, "linear_attention" in what transformers 5 saves. */
static bool is_mamba(struct describer *d, bool listed, int layer)
{
    return listed && (describe_listed(d, "layer_types", layer, "mamba") ||
                      describe_listed(d, "layer_types", layer, "linear_attention"));
}

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape mamba = {.kind = MIXER_MAMBA2,
                                      .rope = ROPE_NONE,
                                      .heads = describe_int(d, "mamba_n_heads", 0, 1, 4096),
                                      .value_dim = describe_int(d, "mamba_d_head", 0, 1, 4096),
                                      .state = describe_int(d, "mamba_d_state", 0, 1, 4096),
                                      .groups = describe_int(d, "mamba_n_groups", 1, 1, 4096),
                                      .taps = describe_int(d, "mamba_d_conv", 4, 1, 64)};
    bool listed = describe_per_layer(d, hp, "layer_types"),
         rotated = describe_is(d, "position_embedding_type", "rope");
    int shared = describe_int(d, "shared_intermediate_size", 0, 0, 1 << 20);

    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (is_mamba(d, listed, l)) {
            s->mixer = mamba;
        } else if (!rotated) {
            s->mixer.rope = ROPE_NONE;
            s->mixer.rope_dims = 0;
        }
        if (s->ffn.kind == FFN_ROUTED)
            describe_shared(&s->ffn, shared);
        else
            describe_dense(&s->ffn, shared);
    }
}

const struct family family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .json = {"GraniteMoeHybridForCausalLM", "granitemoehybrid"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .layers = layers,
    ROPE_NAMES,
    .ignored = none,
    .stops = stops,
};
