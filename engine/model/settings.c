/* Checks settings of config.json that any family may have against what is computed: other values
 * would be computed wrongly, so they are refused by name. Thread: the one that loads. Names and
 * words after configuration_*.py of Hugging Face transformers, the functions of the words after its
 * activations.py. */
#include "engine/model/describe.h"
#include "engine/model/hparams_keys.h"

#include <stddef.h>

static const char *const activations[ACTIVATIONS][4] = {
    [ACTIVATION_SILU] = {"silu", "swish"},
    [ACTIVATION_GELU] = {"gelu_pytorch_tanh", "gelu_new"},
    [ACTIVATION_CLAMPED_SWIGLU] = {"silu", "swiglu"},
    [ACTIVATION_RELU2] = {"relu2"},
    [ACTIVATION_RELU] = {"relu"},
    [ACTIVATION_GELU_PLAIN] = {"gelu_new", "gelu_pytorch_tanh"},
    [ACTIVATION_REGLU] = {"relu"},
    [ACTIVATION_CLAMPED_SILU] = {"silu"},
    [ACTIVATION_BOUNDED_SILU] = {"silu", "swish"},
};

static void check_activation(const struct hparams *hp, struct describer *d)
{
    static const char *const names[] = {"hidden_act", "hidden_activation", "mlp_hidden_act",
                                        "activation_function"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        describe_only(d, names[i], activations[hp->common.ffn.activation]);
}

/* The router of a layer with experts. */
static void check_router(const struct hparams *hp, struct describer *d)
{
    static const char *const softmax[] = {"softmax", NULL}, *const sigmoid[] = {"sigmoid", NULL},
                             *const root[] = {"sqrtsoftplus", NULL};

    for (int l = 0; l < hp->n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(hp, l)->ffn;

        if (s->experts && s->router.groups > 1 &&
            s->used > s->experts / s->router.groups * s->router.groups_used)
            describe_refuse(d, "a token of layer %d uses %d experts, but %d of %d groups have %d",
                            l, s->used, s->router.groups_used, s->router.groups,
                            s->experts / s->router.groups * s->router.groups_used);
        if (s->experts && s->router.kind != ROUTER_SPARSEMIXER)
            describe_only(d, "scoring_func",
                          s->router.kind == ROUTER_SIGMOID ? sigmoid
                          : s->router.kind == ROUTER_ROOT  ? root
                                                           : softmax);
    }
}

/* Most families rotate whole heads, whatever part config.json states. */
static void check_rotary(const struct hparams *hp, struct describer *d)
{
    double part = describe_is_gguf(d) ? 0.0 : hparams_rotary_part(d->family, d->f);

    if (hp->common.mixer.rope != ROPE_NONE && d->family->part_unsaid == 0.0f && part > 0.0 &&
        part < 1.0)
        describe_refuse(d, "partial_rotary_factor of its config.json is below 1, which is not "
                           "computed for this family");
}

void describe_settings(const struct hparams *hp, struct describer *d)
{
    check_activation(hp, d);
    check_router(hp, d);
    check_rotary(hp, d);
    describe_never(d, "attn_logit_softcapping");
    describe_never(d, "alibi");
    if (!hp->common.ffn.bias)
        describe_never(d, "mlp_bias");
    if (hp->logit_cap == 0.0f)
        describe_never(d, "final_logit_softcapping");
    if (hp->common.mixer.rope == ROPE_PAIRS && !describe_flag(d, "rope_interleave", true))
        describe_refuse(d, "rope_interleave of its config.json is false, which is not computed");
}
