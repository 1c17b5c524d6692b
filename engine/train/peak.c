/* See peak.h. A task is one product; every matrix has its own weights, so that they are read from
 * memory as a model's are. */
#include "engine/train/peak.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/train/crew.h"

struct shape {
    int rows, cols, n; /* of the matrix; its number of tokens */
    const float *w;
};

struct peak {
    struct shape *shapes;
    int n;
    size_t weights, side; /* floats: of all matrices; of the largest x or y */
    float *memory;        /* the weights, then an x for all */
};

static void add(struct peak *p, const struct linear *l, int n)
{
    size_t size = (size_t)l->rows * (size_t)l->cols,
           side = (size_t)n * (size_t)(l->rows > l->cols ? l->rows : l->cols);

    if (!size || n < 1)
        return;
    p->shapes[p->n++] = (struct shape){.rows = l->rows, .cols = l->cols, .n = n};
    p->weights += size;
    p->side = side > p->side ? side : p->side;
}

static void collect(struct peak *p, const struct base_layer *l, int tokens)
{
    const struct ffn_shape *f = &l->shape->ffn;
    int each = f->experts ? tokens * f->used / f->experts : 0;

    add(p, &l->q, tokens);
    add(p, &l->k, tokens);
    add(p, &l->v, tokens);
    add(p, &l->o, tokens);
    for (int i = 0; i < shape_experts(l->shape); i++)
        for (int part = 0; part < 3; part++)
            add(p, &l->experts[i][part], i >= f->experts ? tokens : each > 0 ? each : 1);
}

static void fill(struct peak *p)
{
    float *w = p->memory;

    for (size_t i = 0; i < p->weights + p->side; i++)
        w[i] = (float)(i % 17) * 0.01f - 0.08f;
    for (int i = 0; i < p->n; i++) {
        p->shapes[i].w = w;
        w += (size_t)p->shapes[i].rows * (size_t)p->shapes[i].cols;
    }
}

/* Forward and backward. */
static void multiply_both_ways(void *ctx, int task, float *y)
{
    const struct peak *p = ctx;
    const struct shape *s = &p->shapes[task / 2];
    const float *x = p->memory + p->weights;

    if (task % 2 == 0)
        multiply(false, true, s->n, s->rows, s->cols, 1.0f, x, s->cols, s->w, s->cols, 0.0f, y,
                 s->rows);
    else
        multiply(false, false, s->n, s->cols, s->rows, 1.0f, x, s->rows, s->w, s->cols, 0.0f, y,
                 s->cols);
}

static double operations(const struct peak *p)
{
    double sum = 0.0;

    for (int i = 0; i < p->n; i++)
        sum += 4.0 * p->shapes[i].n * p->shapes[i].rows * p->shapes[i].cols;
    return sum;
}

/* The fastest round counts: other load must not reduce the figure. */
static double measure(const struct peak *p, struct crew *c, double seconds)
{
    uint64_t begun = clock_now();
    double best = 0.0;

    crew_each(c, 2 * p->n, multiply_both_ways, (void *)(uintptr_t)p); /* warm-up */
    do {
        uint64_t from = clock_now();
        double rate;

        crew_each(c, 2 * p->n, multiply_both_ways, (void *)(uintptr_t)p);
        rate = clock_rate(operations(p), clock_now() - from);
        best = rate > best ? rate : best;
    } while (clock_seconds(clock_now() - begun) < seconds);
    return best;
}

int peak_measure(const struct base *b, int threads, int tokens, double seconds, double *out,
                 struct error *e)
{
    const struct base_layer *l = &b->layers[b->model->hp.n_layers / 2];
    struct peak p = {
        .shapes = mem_alloc(4 + 3 * (size_t)shape_experts(l->shape), sizeof *p.shapes)};
    struct crew c = {0};
    size_t bytes = 0;
    int rc = 0;

    if (p.shapes) {
        collect(&p, l, tokens);
        bytes = (p.weights + p.side) * sizeof *p.memory;
        p.memory = mem_pages(bytes);
    }
    if (!p.memory)
        rc = error_set(e, ERR_MEMORY, "out of memory for measuring the products alone");
    else if ((rc = crew_init(&c, threads, p.side, e)) == 0) {
        fill(&p);
        *out = measure(&p, &c, seconds);
    }
    if (c.n)
        crew_release(&c);
    mem_pages_free(p.memory, bytes);
    mem_free(p.shapes);
    return rc;
}
