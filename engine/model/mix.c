/* See mix.h. */
#include "engine/model/mix.h"

static bool divides(enum dtype type, int cols)
{
    return cols % dtype_info(type)->block == 0;
}

/* Where a rule applies. Models with 8 experts (Mixtral's shape) have keys and values that are small
 * relative to them; so have models whose heads share theirs by four. */
enum where {
    ANYWHERE,
    FIRST_TWO, /* layers */
    FIRST_FOUR,
    FIRST_SIXTEENTH,
    FIRST_EIGHTH,
    FIRST_UNWEIGHTED, /* eighth, without an importance matrix */
    FIRST_WEIGHTED,   /* eighth, with one */
    SENSITIVE,        /* the first and last eighth, and every third between */
    EIGHT_EXPERTS,
    SHARED_HEADS,
};

static bool holds(enum where where, struct mix mix, const struct hparams *hp, int layer)
{
    int n = hp->n_layers;

    switch (where) {
    case ANYWHERE: return true;
    case FIRST_TWO: return layer < 2;
    case FIRST_FOUR: return layer < 4;
    case FIRST_SIXTEENTH: return layer < n / 16;
    case FIRST_EIGHTH: return layer < n / 8;
    case FIRST_UNWEIGHTED: return layer < n / 8 && !mix.importance;
    case FIRST_WEIGHTED: return layer < n / 8 && mix.importance;
    case SENSITIVE: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    case EIGHT_EXPERTS: return hp->common.ffn.experts == 8;
    case SHARED_HEADS:
        return hp->common.mixer.kv_heads && hp->common.mixer.heads / hp->common.mixer.kv_heads >= 4;
    }
    return false;
}

/* The matrices of a rule: those of a mix of this size and base, or of any. */
struct rule {
    enum tensor_role role;
    enum dtype base; /* DTYPE_COUNT: any that is quantised */
    enum mix_size size;
    enum where where;
    enum dtype to;
};

/* The first match counts. */
/* clang-format off */
static const struct rule rules[] = {
    {TENSOR_V, DTYPE_COUNT, MIX_PLAIN, EIGHT_EXPERTS, DTYPE_Q8_0},
    {TENSOR_K, DTYPE_COUNT, MIX_PLAIN, EIGHT_EXPERTS, DTYPE_Q8_0},
    {TENSOR_V, DTYPE_Q2_K, MIX_PLAIN, SHARED_HEADS, DTYPE_Q4_K},
    {TENSOR_V, DTYPE_Q2_K, MIX_PLAIN, ANYWHERE, DTYPE_Q3_K},
    {TENSOR_V, DTYPE_Q2_K, MIX_SMALL, SHARED_HEADS, DTYPE_Q4_K},
    {TENSOR_V, DTYPE_Q3_K, MIX_MEDIUM, FIRST_TWO, DTYPE_Q5_K},
    {TENSOR_V, DTYPE_Q3_K, MIX_MEDIUM, ANYWHERE, DTYPE_Q4_K},
    {TENSOR_V, DTYPE_Q3_K, MIX_LARGE, ANYWHERE, DTYPE_Q5_K},
    {TENSOR_V, DTYPE_IQ4_NL, MIX_PLAIN, SHARED_HEADS, DTYPE_Q5_K},
    {TENSOR_V, DTYPE_IQ4_XS, MIX_PLAIN, SHARED_HEADS, DTYPE_Q5_K},
    {TENSOR_V, DTYPE_Q4_K, MIX_SMALL, FIRST_FOUR, DTYPE_Q5_K},
    {TENSOR_V, DTYPE_Q4_K, MIX_MEDIUM, SENSITIVE, DTYPE_Q6_K},
    {TENSOR_V, DTYPE_Q5_K, MIX_MEDIUM, SENSITIVE, DTYPE_Q6_K},
    {TENSOR_DOWN, DTYPE_Q2_K, MIX_PLAIN, ANYWHERE, DTYPE_Q3_K},
    {TENSOR_DOWN, DTYPE_Q2_K, MIX_SMALL, FIRST_EIGHTH, DTYPE_Q4_K},
    {TENSOR_DOWN, DTYPE_Q3_K, MIX_MEDIUM, FIRST_SIXTEENTH, DTYPE_Q5_K},
    {TENSOR_DOWN, DTYPE_Q3_K, MIX_MEDIUM, ANYWHERE, DTYPE_Q4_K},
    {TENSOR_DOWN, DTYPE_Q3_K, MIX_LARGE, ANYWHERE, DTYPE_Q5_K},
    {TENSOR_DOWN, DTYPE_IQ4_NL, MIX_PLAIN, FIRST_UNWEIGHTED, DTYPE_Q5_K},
    {TENSOR_DOWN, DTYPE_IQ4_XS, MIX_PLAIN, FIRST_UNWEIGHTED, DTYPE_Q5_K},
    {TENSOR_DOWN, DTYPE_Q4_K, MIX_SMALL, FIRST_EIGHTH, DTYPE_Q5_K},
    {TENSOR_DOWN, DTYPE_Q4_K, MIX_MEDIUM, SENSITIVE, DTYPE_Q6_K},
    {TENSOR_DOWN, DTYPE_Q5_K, MIX_MEDIUM, SENSITIVE, DTYPE_Q6_K},
    {TENSOR_DOWN, DTYPE_Q4_0, MIX_PLAIN, FIRST_WEIGHTED, DTYPE_Q4_1},
    {TENSOR_DOWN, DTYPE_Q5_0, MIX_PLAIN, FIRST_WEIGHTED, DTYPE_Q5_1},
    {TENSOR_O, DTYPE_Q2_K, MIX_PLAIN, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_Q3_K, MIX_SMALL, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_Q3_K, MIX_MEDIUM, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_Q3_K, MIX_LARGE, EIGHT_EXPERTS, DTYPE_Q3_K},
    {TENSOR_O, DTYPE_Q4_K, MIX_SMALL, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_Q4_K, MIX_MEDIUM, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_IQ4_NL, MIX_PLAIN, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_IQ4_XS, MIX_PLAIN, EIGHT_EXPERTS, DTYPE_Q5_K},
    {TENSOR_O, DTYPE_Q2_K, MIX_PLAIN, ANYWHERE, DTYPE_Q3_K},
    {TENSOR_O, DTYPE_Q3_K, MIX_MEDIUM, ANYWHERE, DTYPE_Q4_K},
    {TENSOR_O, DTYPE_Q3_K, MIX_LARGE, ANYWHERE, DTYPE_Q5_K},
};
/* clang-format on */

/* Rules are written for one of several roles that are treated alike. */
static enum tensor_role role_of_rules(enum tensor_role role)
{
    switch (role) {
    case TENSOR_DOWNS:
    case TENSOR_SHARED_DOWN:
    case TENSOR_DENSE_DOWN: return TENSOR_DOWN;
    case TENSOR_NGRAM_TABLE:
    case TENSOR_INPUT_TABLE: return TENSOR_EMBEDDINGS;
    case TENSOR_QKV:
    case TENSOR_V_BEFORE:
    case TENSOR_KV_B: return TENSOR_V;
    default: return role;
    }
}

/* The head affects every token, and is a small part of the bytes: at least Q6_K in all mixes. */
static enum dtype head_type(struct mix mix, int cols)
{
    return mix.base == DTYPE_Q8_0 || mix.size == MIX_EXPERTS || !divides(mix.base, cols)
               ? DTYPE_Q8_0
               : DTYPE_Q6_K;
}

static enum dtype wanted(struct mix mix, const struct hparams *hp, enum tensor_role role, int layer,
                         int cols)
{
    enum tensor_role ruled = role_of_rules(role);

    if (role == TENSOR_HEAD || (role == TENSOR_EMBEDDINGS && hp->tied_embeddings))
        return head_type(mix, cols);
    if (mix.size == MIX_EXPERTS)
        return role == TENSOR_GATES || role == TENSOR_UPS || role == TENSOR_DOWNS ||
                       role == TENSOR_GATE_UPS
                   ? mix.base
                   : DTYPE_Q8_0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].role == ruled &&
            (rules[i].base == DTYPE_COUNT ||
             (rules[i].base == mix.base && rules[i].size == mix.size)) &&
            holds(rules[i].where, mix, hp, layer))
            return rules[i].to;
    return mix.base;
}

enum dtype mix_fallback(enum dtype type, int cols)
{
    if (!divides(type, cols))
        type = type == DTYPE_Q4_K                         ? DTYPE_Q5_0
               : type == DTYPE_Q5_K                       ? DTYPE_Q5_1
               : type == DTYPE_Q2_K || type == DTYPE_Q3_K ? DTYPE_Q4_0
               : type == DTYPE_IQ4_XS                     ? DTYPE_IQ4_NL
                                                          : DTYPE_Q8_0;
    return divides(type, cols) ? type : DTYPE_F16;
}

enum dtype mix_type(struct mix mix, const struct hparams *hp, enum tensor_role role, int layer,
                    int cols)
{
    if (!dtype_is_quantised(mix.base))
        return mix.base;
    return mix_fallback(wanted(mix, hp, role, layer, cols), cols);
}
