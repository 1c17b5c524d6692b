/* Family nemotron_h (Nemotron 3): every layer is one operator, Mamba 2, attention without
 * positions, routed experts or a dense feed-forward. Names after modeling_nemotron_h.py (Hugging
 * Face). Described, not computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {NULL}, {"n_routed_experts"}, 0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {NULL}, {"num_experts_per_tok"}, 0, 0, 64},
    {FIELD(common.ffn.width), KEY_INT, {NULL}, {"moe_intermediate_size"}, 0, 1, 1 << 20},
    KEYS_END,
};
/* clang-format on */

static const char *const none[] = {NULL};

static void one_operator(struct layer_shape *s, char kind, const struct mixer_shape *mamba,
                         int width, struct describer *d)
{
    switch (kind) {
    case 'M':
        s->mixer = *mamba;
        describe_no_ffn(&s->ffn);
        break;
    case '*': describe_no_ffn(&s->ffn); break;
    case 'E': s->mixer = (struct mixer_shape){.kind = MIXER_NONE, .rope = ROPE_NONE}; break;
    case '-':
        s->mixer = (struct mixer_shape){.kind = MIXER_NONE, .rope = ROPE_NONE};
        describe_dense(&s->ffn, width);
        break;
    default:
        describe_refuse(d, "hybrid_override_pattern of its config.json has a letter other than M, "
                           "E, * and -");
    }
}

static void layers(struct hparams *hp, struct describer *d)
{
    struct meta_value pattern = family_config(d->f, "hybrid_override_pattern");
    const struct mixer_shape mamba = {.kind = MIXER_MAMBA2,
                                      .rope = ROPE_NONE,
                                      .heads = describe_int(d, "mamba_num_heads", 0, 1, 4096),
                                      .value_dim = describe_int(d, "mamba_head_dim", 0, 1, 4096),
                                      .state = describe_int(d, "ssm_state_size", 0, 1, 4096),
                                      .groups = describe_int(d, "n_groups", 1, 1, 4096),
                                      .taps = describe_int(d, "conv_kernel", 4, 1, 64)};
    int width = describe_int(d, "intermediate_size", 0, 1, 1 << 20);

    if (pattern.type != META_STRING || pattern.len != (size_t)hp->n_layers) {
        describe_refuse(d, "hybrid_override_pattern of its config.json is not a letter a layer");
        return;
    }
    for (int l = 0; l < hp->n_layers; l++)
        one_operator(&hp->layers[l], pattern.s[l], &mamba, width, d);
}

const struct family family_nemotron_h = {
    .name = "nemotron_h",
    .json = {"NemotronHForCausalLM", "nemotron_h"},
    .shape = {.mixer = {.rope = ROPE_NONE},
              .ffn = {.activation = ACTIVATION_RELU2,
                      .router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = none,
    .stops = none,
};
