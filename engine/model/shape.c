/* See shape.h: names of kinds, and which of them are computed. */
#include "engine/model/shape.h"

#include <stddef.h>

/* clang-format off */
static const struct {
    const char *word;
    bool computed;
} mixers[MIXER_KINDS] = {
    [MIXER_ATTENTION] = {"attention", true},
    [MIXER_NONE] = {"no mixer", true},
    [MIXER_MLA] = {"latent attention (MLA)", true},
    [MIXER_SHORT_CONVOLUTION] = {"a short convolution", true},
    [MIXER_DELTA_NET] = {"a gated delta net", true},
    [MIXER_KIMI_DELTA] = {"Kimi delta attention", true},
    [MIXER_LIGHTNING] = {"lightning attention", false},
    [MIXER_MAMBA2] = {"a Mamba 2 mixer", true},
    [MIXER_MAMBA1] = {"a Mamba 1 mixer", true},
    [MIXER_CONVOLVED] = {"convolved attention", true},
}, ffns[FFN_KINDS] = {
    [FFN_ROUTED] = {"routed experts", true},
    [FFN_DENSE] = {"a dense feed-forward", true},
    [FFN_NONE] = {"no feed-forward", true},
    [FFN_DENSE_AND_ROUTED] = {"a dense feed-forward beside routed experts", true},
};
/* clang-format on */

static const char *const activations[ACTIVATIONS] = {
    [ACTIVATION_SILU] = "SwiGLU",
    [ACTIVATION_GELU] = "gated GELU",
    [ACTIVATION_CLAMPED_SWIGLU] = "clamped SwiGLU",
    [ACTIVATION_BOUNDED_SILU] = "bounded SiLU",
    [ACTIVATION_RELU2] = "squared ReLU",
    [ACTIVATION_RELU] = "ReLU",
    [ACTIVATION_GELU_PLAIN] = "GELU",
    [ACTIVATION_REGLU] = "ReGLU",
    [ACTIVATION_CLAMPED_SILU] = "clamped SiLU",
};

static const char *const routers[ROUTER_KINDS] = {
    [ROUTER_SPARSEMIXER] = "SparseMixer",
    [ROUTER_SOFTMAX] = "softmax",
    [ROUTER_SIGMOID] = "sigmoid",
};

static const char *const norms[NORM_KINDS] = {
    [NORM_LAYER] = "layer norm",
    [NORM_RMS] = "RMS norm",
    [NORM_RMS_ONE] = "RMS norm of 1 + w",
};

static const char *const pairings[ROPE_PAIRINGS] = {
    [ROPE_HALVES] = "halves",
    [ROPE_PAIRS] = "pairs",
    [ROPE_NONE] = "none",
    [ROPE_PROPORTIONAL] = "proportional",
};

const char *shape_mixer_word(enum mixer_kind kind)
{
    return mixers[kind].word;
}

const char *shape_ffn_word(enum ffn_kind kind)
{
    return ffns[kind].word;
}

const char *shape_activation_word(enum activation activation)
{
    return activations[activation];
}

const char *shape_router_word(enum router_kind kind)
{
    return routers[kind];
}

const char *shape_norm_word(enum norm_kind kind)
{
    return norms[kind];
}

const char *shape_rope_word(enum rope_pairing pairing)
{
    return pairings[pairing];
}

const char *shape_unsupported(const struct layer_shape *s)
{
    if (!mixers[s->mixer.kind].computed)
        return mixers[s->mixer.kind].word;
    if (!ffns[s->ffn.kind].computed)
        return ffns[s->ffn.kind].word;
    return NULL;
}
