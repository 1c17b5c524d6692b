/* See attention.h. Queries are processed in blocks, to limit the memory of scores. */
#include "engine/train/attention.h"

#include "engine/train/wide.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define QUERIES 64 /* of a block */

size_t attention_scratch(int longest)
{
    return 2 * (size_t)QUERIES * (size_t)longest;
}

/* One block of queries of a head: rows q0 .. q0+nq-1 of the sequence see keys k0 .. k0+nk-1. */
struct block {
    int q0, nq, k0, nk, head, of; /* of: its head of keys */
    ptrdiff_t rows;               /* the sequence's first */
};

static struct block block_of(const struct attention *a, int sequence, int head, int q0)
{
    int n = a->starts[sequence + 1] - a->starts[sequence], window = a->shape->window;
    struct block b = {.q0 = q0,
                      .nq = n - q0 < QUERIES ? n - q0 : QUERIES,
                      .head = head,
                      .of = head / (a->shape->heads / a->shape->kv_heads),
                      .rows = a->starts[sequence]};

    b.k0 = window && q0 - window + 1 > 0 ? q0 - window + 1 : 0;
    b.nk = b.q0 + b.nq - b.k0;
    return b;
}

/* Start of a block's rows in x, whose rows hold `heads` heads of `dim`. */
static ptrdiff_t at(const struct block *b, int row, int head, int heads, int dim)
{
    return (b->rows + row) * heads * dim + (ptrdiff_t)head * dim;
}

/* p (nq, nk): the weights. */
static void weigh(const struct attention *a, const struct block *b, float *p)
{
    const struct mixer_shape *s = a->shape;
    int dim = s->key_dim;

    multiply(false, true, b->nq, b->nk, dim, shape_score_scale(s),
             a->q + at(b, b->q0, b->head, s->heads, dim), (ptrdiff_t)s->heads * dim,
             a->k + at(b, b->k0, b->of, s->kv_heads, dim), (ptrdiff_t)s->kv_heads * dim, 0.0f, p,
             b->nk);
    for (int i = 0; i < b->nq; i++) {
        float *row = p + (ptrdiff_t)i * b->nk, most = -INFINITY, sum = 0.0f;
        int end = b->q0 + i - b->k0 + 1,
            begin = s->window && end > s->window ? end - s->window : 0;

        for (int j = begin; j < end; j++)
            most = row[j] > most ? row[j] : most;
        exp_all(row + begin, end - begin, most);
        for (int j = begin; j < end; j++)
            sum += row[j];
        sum = 1.0f / sum;
        for (int j = 0; j < b->nk; j++)
            row[j] = j >= begin && j < end ? row[j] * sum : 0.0f;
    }
}

static void forward_task(void *ctx, int task, float *p)
{
    const struct attention *a = ctx;
    const struct mixer_shape *s = a->shape;
    int sequence = task / s->kv_heads, of = task % s->kv_heads, group = s->heads / s->kv_heads,
        n = a->starts[sequence + 1] - a->starts[sequence], value = shape_value_dim(s);

    for (int h = of * group; h < (of + 1) * group; h++)
        for (int q0 = 0; q0 < n; q0 += QUERIES) {
            struct block b = block_of(a, sequence, h, q0);

            weigh(a, &b, p);
            multiply(false, false, b.nq, value, b.nk, 1.0f, p, b.nk,
                     a->v + at(&b, b.k0, of, s->kv_heads, value), (ptrdiff_t)s->kv_heads * value,
                     0.0f, a->out + at(&b, q0, h, s->heads, value), (ptrdiff_t)s->heads * value);
        }
}

void attention_forward(struct crew *c, const struct attention *a)
{
    crew_each(c, a->n * a->shape->kv_heads, forward_task, (void *)(uintptr_t)a);
}

/* d (nq, nk): gradient of the weights, becomes that of the scores. */
static void back_through_softmax(const struct block *b, const float *p, float *d)
{
    for (int i = 0; i < b->nq; i++) {
        const float *w = p + (ptrdiff_t)i * b->nk;
        float *row = d + (ptrdiff_t)i * b->nk, sum = 0.0f;

        for (int j = 0; j < b->nk; j++)
            sum += w[j] * row[j];
        for (int j = 0; j < b->nk; j++)
            row[j] = w[j] * (row[j] - sum);
    }
}

static void backward_block(const struct attention *a, const struct block *b, float *p)
{
    const struct mixer_shape *s = a->shape;
    int dim = s->key_dim, value = shape_value_dim(s);
    float *d = p + (ptrdiff_t)b->nq * b->nk;
    ptrdiff_t q = at(b, b->q0, b->head, s->heads, dim), k = at(b, b->k0, b->of, s->kv_heads, dim),
              o = at(b, b->q0, b->head, s->heads, value),
              v = at(b, b->k0, b->of, s->kv_heads, value), ldq = (ptrdiff_t)s->heads * dim,
              ldk = (ptrdiff_t)s->kv_heads * dim, ldo = (ptrdiff_t)s->heads * value,
              ldv = (ptrdiff_t)s->kv_heads * value;
    float scale = shape_score_scale(s);

    weigh(a, b, p);
    multiply(true, false, b->nk, value, b->nq, 1.0f, p, b->nk, a->dout + o, ldo, 1.0f, a->dv + v,
             ldv);
    multiply(false, true, b->nq, b->nk, value, 1.0f, a->dout + o, ldo, a->v + v, ldv, 0.0f, d,
             b->nk);
    back_through_softmax(b, p, d);
    multiply(false, false, b->nq, dim, b->nk, scale, d, b->nk, a->k + k, ldk, 0.0f, a->dq + q,
             ldq);
    multiply(true, false, b->nk, dim, b->nq, scale, d, b->nk, a->q + q, ldq, 1.0f, a->dk + k, ldk);
}

static void backward_task(void *ctx, int task, float *scratch)
{
    const struct attention *a = ctx;
    const struct mixer_shape *s = a->shape;
    int sequence = task / s->kv_heads, of = task % s->kv_heads, group = s->heads / s->kv_heads,
        first = a->starts[sequence], n = a->starts[sequence + 1] - first, dim = s->key_dim,
        value = shape_value_dim(s);

    for (ptrdiff_t t = first; t < first + n; t++) {
        memset(a->dk + (t * s->kv_heads + of) * dim, 0, (size_t)dim * sizeof(float));
        memset(a->dv + (t * s->kv_heads + of) * value, 0, (size_t)value * sizeof(float));
    }
    for (int h = of * group; h < (of + 1) * group; h++)
        for (int q0 = 0; q0 < n; q0 += QUERIES) {
            struct block b = block_of(a, sequence, h, q0);

            backward_block(a, &b, scratch);
        }
}

void attention_backward(struct crew *c, const struct attention *a)
{
    crew_each(c, a->n * a->shape->kv_heads, backward_task, (void *)(uintptr_t)a);
}

void rotate(const struct mixer_shape *s, float *x, int heads, const float *cosines,
            const float *sines, bool back)
{
    int pairs = s->rope == ROPE_NONE ? 0 : s->rope_dims / 2, by = s->rope == ROPE_PAIRS ? 2 : 1,
        apart = s->rope == ROPE_PAIRS ? 1 : pairs;

    for (int h = 0; h < heads; h++, x += s->key_dim)
        for (int i = 0; i < pairs; i++) {
            float *a = x + i * by, *b = a + apart, c = cosines[i], t = back ? -sines[i] : sines[i],
                  a0 = *a, b0 = *b;

            *a = a0 * c - b0 * t;
            *b = b0 * c + a0 * t;
        }
}
