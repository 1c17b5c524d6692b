/* The router's margin, and its relation to how well the next token is predicted; see report.h. */
#include "app/lab/report.h"

#include "engine/base/mem.h"
#include "engine/base/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS_LEAST 8 /* tokens of a relation */

struct ranked {
    double value, rank; /* rank: less the mean of all */
    uint64_t at;
};

/* Sums over a block's pairs of centred ranks. */
struct moments {
    double n, x, y, xx, yy, xy;
};

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the report");
}

/* The least score of the chosen less the largest of the others; infinite: all or none are. */
static double margin_of(const struct layer_report *r, const struct trace *t, uint64_t i)
{
    double least = INFINITY, most = -INFINITY;

    for (int x = 0; x < r->experts; x++) {
        double v = (double)trace_score(t, i, r->layer, x);
        bool chosen = false;

        for (int k = 0; k < r->used; k++)
            chosen = chosen || trace_expert(t, i, r->layer, k) == x;
        if (chosen)
            least = fmin(least, v);
        else
            most = fmax(most, v);
    }
    return least - most;
}

static int by_value(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return (x->value > y->value) - (x->value < y->value);
}

static int by_place(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

/* Equal values share the mean of their ranks. Back in the order of the trace. */
static void rank(struct ranked *v, uint64_t n)
{
    qsort(v, n, sizeof *v, by_value);
    for (uint64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && v[j].value == v[i].value;)
            j++;
        for (uint64_t k = i; k < j; k++)
            v[k].rank = ((double)i + (double)j - 1) / 2 - ((double)n - 1) / 2;
    }
    qsort(v, n, sizeof *v, by_place);
}

static double correlation(const struct moments *m)
{
    double xx = m->xx - m->x * m->x / m->n, yy = m->yy - m->y * m->y / m->n,
           xy = m->xy - m->x * m->y / m->n;

    return m->n > 0 && xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

static void add(struct moments *to, const struct moments *m)
{
    to->n += m->n;
    to->x += m->x;
    to->y += m->y;
    to->xx += m->xx;
    to->yy += m->yy;
    to->xy += m->xy;
}

/* Spearman's correlation of the pairs, whose ranks are kept when blocks of tokens are resampled;
 * perplexities of the quarters of least and largest margin. */
static int relate(struct relation *r, struct ranked *margin, struct ranked *surprise, uint64_t n,
                  uint64_t tokens, struct error *e)
{
    uint64_t length = figure_block(tokens), n_blocks = (tokens + length - 1) / length, state = 1;
    struct moments *blocks = mem_alloc(n_blocks, sizeof *blocks), all = {0};
    double samples[REPORT_SAMPLES], few = 0, many = 0, sum_few = 0, sum_many = 0;

    if (!blocks)
        return no_memory(e);
    rank(margin, n);
    rank(surprise, n);
    for (uint64_t i = 0; i < n; i++) {
        double x = margin[i].rank, y = surprise[i].rank;

        add(&blocks[margin[i].at / length], &(struct moments){1, x, y, x * x, y * y, x * y});
        if (x < -(double)n / 4) {
            few++;
            sum_few += surprise[i].value;
        } else if (x > (double)n / 4) {
            many++;
            sum_many += surprise[i].value;
        }
    }
    for (uint64_t b = 0; b < n_blocks; b++)
        add(&all, &blocks[b]);
    for (int s = 0; s < REPORT_SAMPLES; s++) {
        struct moments m = {0};

        for (uint64_t b = 0; b < n_blocks; b++)
            add(&m, &blocks[figure_draw(&state, n_blocks)]);
        samples[s] = correlation(&m);
    }
    r->n = n;
    r->rho.value = correlation(&all);
    figure_interval(samples, &r->rho);
    r->low = few > 0 ? exp(sum_few / few) : 0;
    r->high = many > 0 ? exp(sum_many / many) : 0;
    mem_free(blocks);
    return 0;
}

int report_margin_make(struct layer_report *r, const struct trace_report *of, struct error *e)
{
    const struct trace *t = of->trace;
    double *margins = mem_alloc(t->n, sizeof *margins), *sorted = mem_alloc(t->n, sizeof *sorted),
           sum = 0;
    struct ranked *x = NULL, *y = NULL;
    uint64_t n = 0, pairs = 0;
    int rc = 0;

    if (!margins || !sorted) {
        rc = no_memory(e);
        goto out;
    }
    for (uint64_t i = 0; i < t->n; i++) {
        margins[i] = margin_of(r, t, i);
        if (isfinite(margins[i]))
            sum += sorted[n++] = margins[i];
    }
    qsort(sorted, n, sizeof *sorted, series_compare);
    if (n) {
        r->margin_mean = sum / (double)n;
        r->margin_median = series_percentile(sorted, n, 50);
        r->margin_p10 = series_percentile(sorted, n, 10);
    }
    if (!t->head.logprobs)
        goto out;
    x = mem_alloc(t->n, sizeof *x);
    y = mem_alloc(t->n, sizeof *y);
    if (!x || !y) {
        rc = no_memory(e);
        goto out;
    }
    for (uint64_t i = 0; i < t->n; i++) { /* i follows, and is predicted at, prev */
        double p = (double)trace_logprob(t, i);

        if (of->prev[i] < 0 || isnan(p) || !isfinite(margins[of->prev[i]]))
            continue;
        x[pairs] = (struct ranked){margins[of->prev[i]], 0, (uint64_t)of->prev[i]};
        y[pairs++] = (struct ranked){-p, 0, (uint64_t)of->prev[i]};
    }
    if (pairs >= PAIRS_LEAST)
        rc = relate(&r->relation, x, y, pairs, t->n, e);
out:
    mem_free(margins);
    mem_free(sorted);
    mem_free(x);
    mem_free(y);
    return rc;
}
