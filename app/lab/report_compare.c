/* Two traces side by side; see report.h. */
#include "app/lab/report.h"

#include "engine/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct place {
    int sequence, position, index;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static struct place *places_of(const struct trace *t)
{
    struct place *p = mem_alloc(t->n, sizeof *p);

    for (uint64_t i = 0; p && i < t->n; i++)
        p[i] = (struct place){trace_int(t, COLUMN_SEQUENCE, i), trace_int(t, COLUMN_POSITION, i),
                              (int)i};
    if (p)
        qsort(p, t->n, sizeof *p, by_place);
    return p;
}

/* (n, 2) indices of the tokens that both have, by sequence and position; mem_*. */
static int *align(const struct trace *a, const struct trace *b, uint64_t *n)
{
    struct place *pa = places_of(a), *pb = places_of(b);
    int *out = mem_alloc(2 * (a->n < b->n ? a->n : b->n), sizeof *out);
    uint64_t i = 0, j = 0;

    *n = 0;
    while (pa && pb && out && i < a->n && j < b->n) {
        bool same = pa[i].sequence == pb[j].sequence && pa[i].position == pb[j].position;

        if (same && trace_int(a, COLUMN_TOKEN, (uint64_t)pa[i].index) ==
                        trace_int(b, COLUMN_TOKEN, (uint64_t)pb[j].index)) {
            out[2 * *n] = pa[i].index;
            out[2 * *n + 1] = pb[j].index;
            ++*n;
        }
        if (same)
            i++, j++;
        else if (pa[i].sequence != pb[j].sequence ? pa[i].sequence < pb[j].sequence
                                                  : pa[i].position < pb[j].position)
            i++;
        else
            j++;
    }
    mem_free(pa);
    mem_free(pb);
    if (!pa || !pb) {
        mem_free(out);
        return NULL;
    }
    return out;
}

/* Adds the agreement of two tokens in a layer. */
struct agreement {
    double common, first, weights, weighed;
};

static struct agreement agree(const struct trace *a, uint64_t i, const struct trace *b, uint64_t j,
                              int layer, int used)
{
    struct agreement s = {0};

    for (int k = 0; k < used; k++)
        for (int m = 0, x = trace_expert(a, i, layer, k); m < used && x >= 0; m++)
            if (trace_expert(b, j, layer, m) == x) {
                s.common++;
                s.weights += fabs((double)trace_weight(a, i, layer, k) -
                                  (double)trace_weight(b, j, layer, m));
                s.weighed++;
            }
    s.first = trace_expert(a, i, layer, 0) >= 0 &&
              trace_expert(a, i, layer, 0) == trace_expert(b, j, layer, 0);
    return s;
}

static int compare_common(struct layer_comparison *c, int used, const struct trace *a,
                          const struct trace *b, const int *pairs, uint64_t n, struct error *e)
{
    uint64_t length = figure_block(n), n_blocks = (n + length - 1) / length, state = 1;
    double *blocks = mem_alloc(2 * n_blocks, sizeof *blocks), values[REPORT_SAMPLES];
    struct agreement sum = {0};

    if (!blocks)
        return error_set(e, ERR_MEMORY, "out of memory for the comparison");
    for (uint64_t i = 0; i < n; i++) {
        struct agreement one = agree(a, (uint64_t)pairs[2 * i], b, (uint64_t)pairs[2 * i + 1],
                                     c->layer, used);

        sum.common += one.common;
        sum.first += one.first;
        sum.weights += one.weights;
        sum.weighed += one.weighed;
        blocks[2 * (i / length)] += one.common;
        blocks[2 * (i / length) + 1] += used;
    }
    c->overlap.value = sum.common / ((double)n * used);
    c->same_first = sum.first / (double)n;
    c->weight_difference = sum.weighed > 0 ? sum.weights / sum.weighed : 0;
    for (int s = 0; s < REPORT_SAMPLES; s++) {
        double common = 0, all = 0;

        for (uint64_t i = 0; i < n_blocks; i++) {
            uint64_t at = figure_draw(&state, n_blocks);

            common += blocks[2 * at];
            all += blocks[2 * at + 1];
        }
        values[s] = common / all;
    }
    figure_interval(values, &c->overlap);
    mem_free(blocks);
    return 0;
}

static int compare_layer(struct layer_comparison *c, const struct layer_report *a,
                         const struct trace *ta, const struct layer_report *b,
                         const struct trace *tb, struct error *e)
{
    double *table = mem_alloc(2 * (size_t)a->experts, sizeof *table);

    if (!table)
        return error_set(e, ERR_MEMORY, "out of memory for the comparison");
    c->layer = a->layer;
    c->divergence = figure_divergence(a->counts, b->counts, a->experts);
    for (uint64_t i = 0; i < ta->n; i++)
        if (trace_expert(ta, i, a->layer, 0) >= 0)
            table[trace_expert(ta, i, a->layer, 0)]++;
    for (uint64_t i = 0; i < tb->n; i++)
        if (trace_expert(tb, i, a->layer, 0) >= 0)
            table[a->experts + trace_expert(tb, i, a->layer, 0)]++;
    c->test = figure_chi_square(table, 2, a->experts);
    mem_free(table);
    return 0;
}

int trace_compare(struct trace_comparison *c, const struct trace_report *a,
                  const struct trace_report *b, struct error *e)
{
    const struct trace *ta = a->trace, *tb = b->trace;
    struct chi_square **tests = NULL;
    int *pairs = NULL, rc;

    *c = (struct trace_comparison){0};
    if ((rc = trace_head_match(&ta->head, ta->path, &tb->head, tb->path, e)) < 0)
        return rc;
    pairs = align(ta, tb, &c->common);
    c->layers = mem_alloc((size_t)a->n_layers, sizeof *c->layers);
    tests = mem_alloc((size_t)a->n_layers, sizeof *tests);
    if (!pairs || !c->layers || !tests)
        rc = error_set(e, ERR_MEMORY, "out of memory for the comparison");
    for (int l = 0; l < a->n_layers && rc == 0; l++) {
        c->n_layers = l + 1;
        tests[l] = &c->layers[l].test;
        rc = compare_layer(&c->layers[l], &a->layers[l], ta, &b->layers[l], tb, e);
        if (rc == 0 && c->common)
            rc = compare_common(&c->layers[l], a->layers[l].used, ta, tb, pairs, c->common, e);
    }
    if (rc == 0)
        rc = figure_holm(tests, (size_t)c->n_layers, e);
    mem_free(pairs);
    mem_free(tests);
    if (rc < 0)
        trace_comparison_release(c);
    return rc;
}

void trace_comparison_release(struct trace_comparison *c)
{
    mem_free(c->layers);
    *c = (struct trace_comparison){0};
}
