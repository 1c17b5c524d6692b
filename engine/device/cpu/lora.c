/* The adapters' contribution to a product (rule 14 of numerics.h). Compute threads. A x is the same
 * for all rows of a matrix, so a thread that takes several tasks of a phase caches it; each thread
 * computes its own, which saves a phase and costs at most rank / (rows / threads) of the
 * product. */
#include "engine/device/cpu/cpu.h"
#include "engine/layout/lora.h"

#include <assert.h>

/* Of token t; NULL: no adapter applies. */
static const float *strengths_of(const struct cpu_device *d, const struct lora *l,
                                 const struct input *in, int t)
{
    const float *s = d->strengths ? d->strengths[in->row ? in->row[t] : in->first + t] : NULL;

    for (int i = 0; s && i < l->n_parts; i++)
        if (s[l->parts[i].adapter] != 0.0f)
            return s;
    return NULL;
}

static bool anyone(const struct cpu_device *d, const struct lora *l, const struct input *in, int t0,
                   int t1)
{
    for (int t = t0; t < t1; t++)
        if (strengths_of(d, l, in, t))
            return true;
    return false;
}

/* Turns t_k into w_k. */
static void weigh(const struct lora *l, const float *strengths, float *w)
{
    for (int i = 0; i < l->n_parts; w += l->parts[i++].rank) {
        float factor = strengths[l->parts[i].adapter] * l->parts[i].scale;

        for (int k = 0; k < l->parts[i].rank; k++)
            w[k] = factor * w[k];
    }
}

/* The weights of tokens t0 .. t1-1 by a, this thread's last two or computed. */
static const float *weights_of(const struct cpu_device *d, int tid, const struct matrix *m,
                               const float *by, const struct input *in, int t0, int t1)
{
    struct thread_scratch *s = &d->threads[tid];
    const struct lora *l = m->lora;
    const float *x = in->rows + t0 * in->stride;
    struct adapted *a = &s->adapted[s->adapted_next];

    for (int i = 0; i < 2; i++)
        if (s->adapted[i].x == x && s->adapted[i].a == by && s->adapted[i].phase == s->phase &&
            s->adapted[i].n == t1 - t0)
            return s->adapted[i].w;
    s->adapted_next ^= 1;
    float_rows(d, tid, by, l->rank, m->cols, x, in->stride, t1 - t0, a->w, l->rank);
    for (int t = t0; t < t1; t++) {
        const float *strengths = strengths_of(d, l, in, t);

        if (strengths)
            weigh(l, strengths, a->w + (size_t)(t - t0) * (size_t)l->rank);
    }
    a->a = by;
    a->x = x;
    a->phase = s->phase;
    a->n = t1 - t0;
    return a->w;
}

/* Rows r0 .. r1-1 that have one A. */
static void add_rows(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                     const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    const struct lora *l = w->lora;
    int rows = lora_rows(l, w->rows);
    const float *weights = weights_of(d, tid, w, lora_a(l, w->rows, w->cols, r0), in, t0, t1),
                *b = l->b + r0 % rows;

    for (int t = t0; t < t1; t++, weights += l->rank, out += stride)
        if (strengths_of(d, l, in, t))
            d->k->combine(out, b, rows, weights, l->rank, r1 - r0, out);
}

void lora_add(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
              const struct input *in, int t0, int t1, float *out, ptrdiff_t stride)
{
    const struct lora *l = w->lora;
    int rows = lora_rows(l, w->rows);

    assert(l->a && l->b && l->rank <= d->lora_rank && in->rows);
    if (!anyone(d, l, in, t0, t1))
        return;
    for (int r = r0, end; r < r1; r = end) {
        end = min_int((r / rows + 1) * rows, r1);
        add_rows(d, tid, w, r, end, in, t0, t1, out + (r - r0), stride);
    }
}

void lora_forget(struct thread_scratch *s, const float *x)
{
    for (int i = 0; i < 2; i++) {
        if (s->adapted[i].x == x)
            s->adapted[i].x = NULL;
        if (s->ordered[i].x == x)
            s->ordered[i].x = NULL;
    }
}
