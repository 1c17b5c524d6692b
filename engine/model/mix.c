/* See mix.h. */
#include "engine/model/mix.h"

/* Layers that the _M mixes give more bits: the first and last eighth, and every third between. */
static bool more_bits(int layer, int n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static bool divides(enum dtype type, int cols)
{
    return cols % dtype_info(type)->block == 0;
}

/* The head decides every token, and is a small part of the bytes: at least Q6_K in all mixes. */
static enum dtype head_type(enum dtype base, int cols)
{
    return base == DTYPE_Q8_0 || !divides(base, cols) ? DTYPE_Q8_0 : DTYPE_Q6_K;
}

static enum dtype wanted(struct mix mix, const struct hparams *hp, enum tensor_role role, int layer,
                         int cols)
{
    /* keys and values of models with 8 experts (Mixtral's shape) are small beside those */
    bool eight = hp->common.ffn.experts == 8, more = mix.medium && more_bits(layer, hp->n_layers);

    switch (role) {
    case TENSOR_HEAD: return head_type(mix.base, cols);
    case TENSOR_EMBEDDINGS: return hp->tied_embeddings ? head_type(mix.base, cols) : mix.base;
    case TENSOR_K: return eight ? DTYPE_Q8_0 : mix.base;
    case TENSOR_V: return eight ? DTYPE_Q8_0 : more ? DTYPE_Q6_K : mix.base;
    case TENSOR_O: return eight && mix.medium ? DTYPE_Q5_K : mix.base;
    case TENSOR_DOWN:
    case TENSOR_DOWNS: return more ? DTYPE_Q6_K : mix.base;
    default: return mix.base;
    }
}

enum dtype mix_type(struct mix mix, const struct hparams *hp, enum tensor_role role, int layer,
                    int cols)
{
    enum dtype type = dtype_is_quantised(mix.base) ? wanted(mix, hp, role, layer, cols) : mix.base;

    if (!divides(type, cols))
        type = type == DTYPE_Q4_K ? DTYPE_Q5_0 : type == DTYPE_Q5_K ? DTYPE_Q5_1 : DTYPE_Q8_0;
    return divides(type, cols) ? type : DTYPE_F16;
}
