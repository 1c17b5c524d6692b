/* See attention.h. Groups of heads share keys by broadcasting: queries have the shape (batch, kv
 * heads, group, sequence, dim), keys (batch, kv heads, 1, total, dim), so that nothing is
 * copied. */
#include "engine/convert/onnx/attention.h"

#include <math.h>
#include <stdio.h>

/* Finite: a fully masked row, of a prompt padded on its left, must not become NaN. */
#define UNSEEN (-1e30f)

static void declare_cache(struct network *n, int layer)
{
    const struct mixer_shape *s = &hparams_layer(&n->m->hp, layer)->mixer;
    static const char *const kinds[] = {"key", "value"};
    char name[64];

    for (int i = 0; i < 2; i++) {
        struct onnx_dim dims[] = {{"batch_size", 0},
                                  {NULL, s->kv_heads},
                                  {"past_sequence_length", 0},
                                  {NULL, i ? shape_value_dim(s) : s->key_dim}};

        snprintf(name, sizeof name, "past_key_values.%d.%s", layer, kinds[i]);
        onnx_input(n->g, name, ONNX_FLOAT, 4, dims);
        dims[2].name = "total_sequence_length";
        snprintf(name, sizeof name, "present.%d.%s", layer, kinds[i]);
        onnx_output(n->g, name, ONNX_FLOAT, 4, dims);
    }
}

/* ---- shared by all layers ---- */

/* A table of (positions, pairs) and its rows at position_ids as (batch, 1, sequence, pairs). */
static const char *rotary_rows(struct network *n, const char *name, float *values, int pairs)
{
    const int64_t dims[] = {n->m->hp.context_max, pairs};
    const char *table = onnx_store_values(n->s, name, 2, dims, values);

    return ONNX(n->g, "Unsqueeze", ONNX(n->g, "Gather", table, "position_ids"), ONNX_INTS(n->g, 1));
}

/* In double and rounded once, as the host's own table (rule 6 of engine/device/numerics.h). */
static void fill_rotary(const struct hparams *hp, int pairs, float *cosines, float *sines)
{
    for (int i = 0; i < pairs; i++) {
        double factor = hp->short_factor ? (double)hp->short_factor[i] : 1.0,
               frequency = 1.0 / (factor * pow((double)hp->rope_theta, i / (double)pairs));

        for (int p = 0; p < hp->context_max; p++) {
            size_t at = (size_t)p * (size_t)pairs + (size_t)i;

            cosines[at] = (float)(cos(p * frequency) * (double)hp->short_mscale);
            sines[at] = (float)(sin(p * frequency) * (double)hp->short_mscale);
        }
    }
}

static void begin_rotary(struct network *n)
{
    const struct hparams *hp = &n->m->hp;
    int pairs = hp->common.mixer.rope_dims / 2;
    size_t values = (size_t)hp->context_max * (size_t)pairs;
    float *cosines, *sines;

    if (!pairs || hp->common.mixer.learned_positions ||
        !(cosines = onnx_store_keep(n->s, values)) || !(sines = onnx_store_keep(n->s, values)))
        return;
    fill_rotary(hp, pairs, cosines, sines);
    n->cosines = rotary_rows(n, "rotary.cosines", cosines, pairs);
    n->sines = rotary_rows(n, "rotary.sines", sines, pairs);
}

/* Dimension `axis` of a value, as a number. */
static const char *length_of(struct network *n, const char *value, int axis)
{
    return ONNX(n->g, "Gather", ONNX(n->g, "Shape", value), onnx_int(n->g, axis));
}

void network_begin_attention(struct network *n)
{
    struct onnx_graph *g = n->g;

    n->size = ONNX(g, "Shape", "input_ids");
    n->past = length_of(n, "past_key_values.0.key", 2);
    n->total = ONNX(g, "Add", n->past, ONNX(g, "Gather", n->size, onnx_int(g, 1)));
    n->attended = ONNX(g, "Unsqueeze", onnx_cast(g, "attention_mask", ONNX_BOOL),
                       ONNX_INTS(g, 1, 2, 3));
    begin_rotary(n);
}

/* Row past + i sees the columns j <= past + i, with a window only those beyond past + i -
 * window. */
static const char *mask_of(struct network *n, int window)
{
    struct onnx_graph *g = n->g;
    const char *rows, *columns, *seen;

    if (n->mask && n->window == window)
        return n->mask;
    rows = ONNX(g, "Unsqueeze", ONNX(g, "Range", n->past, n->total, onnx_int(g, 1)),
                ONNX_INTS(g, -1));
    columns = ONNX(g, "Unsqueeze", ONNX(g, "Range", onnx_int(g, 0), n->total, onnx_int(g, 1)),
                   ONNX_INTS(g, 0));
    seen = ONNX(g, "LessOrEqual", columns, rows);
    if (window)
        seen = ONNX(g, "And", seen,
                    ONNX(g, "Greater", columns, ONNX(g, "Sub", rows, onnx_int(g, window))));
    n->window = window;
    n->mask = ONNX(g, "Where", ONNX(g, "And", n->attended, seen), onnx_float(g, 0.0f),
                   onnx_float(g, UNSEEN));
    return n->mask;
}

/* ---- rotation ---- */

/* Splits x into parts of these widths along the last dimension. */
static void split(struct network *n, const char *x, int n_parts, const int64_t *widths,
                  const char **parts)
{
    parts[0] = ONNX(n->g, "Split", x, onnx_ints(n->g, n_parts, widths));
    onnx_set_int(n->g, "axis", -1);
    for (int i = 1; i < n_parts; i++)
        parts[i] = onnx_mtp_output(n->g);
}

static const char *join(struct network *n, const char *a, const char *b, const char *c)
{
    const char *out = ONNX(n->g, "Concat", a, b, c);

    onnx_set_int(n->g, "axis", -1);
    return out;
}

/* (a, b) becomes (a cos - b sin, b cos + a sin). */
static void turn(struct network *n, const char **a, const char **b)
{
    struct onnx_graph *g = n->g;
    const char *x = *a, *y = *b;

    *a = ONNX(g, "Sub", ONNX(g, "Mul", x, n->cosines), ONNX(g, "Mul", y, n->sines));
    *b = ONNX(g, "Add", ONNX(g, "Mul", y, n->cosines), ONNX(g, "Mul", x, n->sines));
}

/* Adjacent pairs, as in GGUF files of some families. */
static const char *rotate_pairs(struct network *n, const char *x, int dims)
{
    struct onnx_graph *g = n->g;
    const char *parts[2], *last = ONNX_INTS(g, -1);

    split(n, ONNX(g, "Reshape", x, ONNX_INTS(g, 0, 0, 0, dims / 2, 2)), 2, (const int64_t[]){1, 1},
          parts);
    for (int i = 0; i < 2; i++)
        parts[i] = ONNX(g, "Squeeze", parts[i], last);
    turn(n, &parts[0], &parts[1]);
    for (int i = 0; i < 2; i++)
        parts[i] = ONNX(g, "Unsqueeze", parts[i], last);
    return ONNX(g, "Reshape", join(n, parts[0], parts[1], NULL), ONNX_INTS(g, 0, 0, 0, dims));
}

static const char *rotate_halves(struct network *n, const char *x, int dims)
{
    const char *parts[2];

    split(n, x, 2, (const int64_t[]){dims / 2, dims / 2}, parts);
    turn(n, &parts[0], &parts[1]);
    return join(n, parts[0], parts[1], NULL);
}

/* x (batch, heads, sequence, dim). */
static const char *rotate(struct network *n, const struct mixer_shape *s, const char *x)
{
    int dims = s->rope_dims, rest = s->key_dim - dims;
    const char *parts[2] = {x, NULL};

    if (!n->cosines || !dims || s->rope == ROPE_NONE)
        return x;
    if (rest)
        split(n, x, 2, (const int64_t[]){dims, rest}, parts);
    parts[0] = s->rope == ROPE_PAIRS ? rotate_pairs(n, parts[0], dims)
                                     : rotate_halves(n, parts[0], dims);
    return rest ? join(n, parts[0], parts[1], NULL) : parts[0];
}

/* ---- a layer ---- */

/* Queries or keys: projected, normed, (batch, heads, sequence, dim), rotated. */
static const char *heads_of(struct network *n, int layer, const char *word, const struct matrix *w,
                            const float *norm, int heads, const char *x)
{
    const struct layer_shape *s = hparams_layer(&n->m->hp, layer);
    bool whole = s->mixer.qk_norm == QK_NORM_WHOLE;
    char name[96], norm_name[96];

    snprintf(name, sizeof name, "layers.%d.attention.%s", layer, word);
    snprintf(norm_name, sizeof norm_name, "layers.%d.attention.%s.norm", layer, word);
    x = network_linear(n, name, w, x);
    if (norm && whole)
        x = network_rms(n, norm_name, s->norms.eps, norm, w->rows, x);
    x = network_heads(n, x, heads, w->rows / heads);
    if (norm && !whole)
        x = network_rms(n, norm_name, s->norms.eps, norm, s->mixer.key_dim, x);
    x = ONNX(n->g, "Transpose", x);
    onnx_set_ints(n->g, "perm", 4, (const int64_t[]){0, 2, 1, 3});
    return x;
}

/* Appends these tokens' rows to the cache; an output of the model. */
static const char *remember(struct network *n, int layer, const char *kind, const char *x)
{
    char past[64], present[64];

    snprintf(past, sizeof past, "past_key_values.%d.%s", layer, kind);
    snprintf(present, sizeof present, "present.%d.%s", layer, kind);
    (void)ONNX(n->g, "Concat", past, x);
    onnx_set_int(n->g, "axis", 2);
    return onnx_call(n->g, present);
}

/* q (batch, heads, sequence, dim), k and v (batch, kv heads, total, dim): (tokens, heads * dim) */
static const char *attend(struct network *n, const struct mixer_shape *s, const char *q,
                          const char *k, const char *v)
{
    struct onnx_graph *g = n->g;
    int group = s->heads / s->kv_heads, values = shape_value_dim(s);
    const char *two = ONNX_INTS(g, 2), *scores, *out;

    q = ONNX(g, "Reshape", q, ONNX_INTS(g, 0, s->kv_heads, group, -1, s->key_dim));
    k = ONNX(g, "Transpose", ONNX(g, "Unsqueeze", k, two));
    onnx_set_ints(g, "perm", 5, (const int64_t[]){0, 1, 2, 4, 3});
    scores = ONNX(g, "Add", ONNX(g, "MatMul", q, k), mask_of(n, s->window));
    scores = ONNX(g, "Softmax", scores);
    onnx_set_int(g, "axis", -1);
    out = ONNX(g, "MatMul", scores, ONNX(g, "Unsqueeze", v, two));
    out = ONNX(g, "Reshape", out, ONNX_INTS(g, 0, s->heads, -1, values));
    out = ONNX(g, "Transpose", out);
    onnx_set_ints(g, "perm", 4, (const int64_t[]){0, 2, 1, 3});
    return ONNX(g, "Reshape", out, ONNX_INTS(g, -1, s->heads * values));
}

const char *network_attention(struct network *n, int layer, const char *x)
{
    const struct mixer_shape *s = &hparams_layer(&n->m->hp, layer)->mixer;
    const struct layer_weights *w = &n->m->layers[layer];
    const char *q = heads_of(n, layer, "q", &w->q, w->q_norm, s->heads, x),
               *k = heads_of(n, layer, "k", &w->k, w->k_norm, s->kv_heads, x),
               *v = heads_of(n, layer, "v", &w->v, NULL, s->kv_heads, x);
    char name[96];

    declare_cache(n, layer);
    q = network_scale(n, rotate(n, s, q), shape_score_scale(s));
    k = remember(n, layer, "key", rotate(n, s, k));
    v = remember(n, layer, "value", v);
    snprintf(name, sizeof name, "layers.%d.attention.o", layer);
    return network_linear(n, name, &w->o, attend(n, s, q, k, v));
}
