/* See series.h. */
#include "engine/base/series.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void series_init(struct series *s)
{
    memset(s, 0, sizeof *s);
}

void series_release(struct series *s)
{
    mem_free(s->values);
    series_init(s);
}

void series_clear(struct series *s)
{
    s->n = 0;
}

int series_add(struct series *s, double value)
{
    assert(s->n <= s->room);
    if (!MEM_ROOM(s->values, s->n, s->room, 64))
        return -1;
    s->values[s->n++] = value;
    return 0;
}

int series_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_percentile(const double *sorted, size_t n, double percent)
{
    double at;
    size_t i;

    assert(sorted || n == 0);
    if (!n)
        return 0.0;
    at = (double)(n - 1) * fmin(fmax(percent, 0.0), 100.0) / 100.0;
    i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

void series_summarise_sorted(double *values, size_t n, struct series_figures *out)
{
    double squares = 0.0;

    assert(values || n == 0);
    memset(out, 0, sizeof *out);
    if (!n)
        return;
    qsort(values, n, sizeof *values, series_compare);
    out->n = n;
    out->min = values[0];
    out->max = values[n - 1];
    for (size_t i = 0; i < n; i++)
        out->mean += values[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - out->mean) * (values[i] - out->mean);
    out->sd = n > 1 ? sqrt(squares / (double)(n - 1)) : 0.0;
    out->median = series_percentile(values, n, 50.0);
    out->p95 = series_percentile(values, n, 95.0);
}

int series_summarise(const struct series *s, struct series_figures *out)
{
    double *copy = mem_alloc(s->n, sizeof *copy);

    memset(out, 0, sizeof *out);
    if (!copy)
        return -1;
    if (s->n)
        memcpy(copy, s->values, s->n * sizeof *copy);
    series_summarise_sorted(copy, s->n, out);
    mem_free(copy);
    return 0;
}

/* Two-sided quantile of Student's t at SERIES_LEVEL: the table up to 30 degrees of freedom, then
 * its usual expansion. */
static double student(double freedom)
{
    static const double table[] = {31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896,
                                   2.821,  2.764, 2.718, 2.681, 2.650, 2.624, 2.602, 2.583,
                                   2.567,  2.552, 2.539, 2.528, 2.518, 2.508, 2.500, 2.492,
                                   2.485,  2.479, 2.473, 2.467, 2.462, 2.457};

    if (freedom < 30.0)
        return table[freedom < 1.0 ? 0 : (size_t)freedom - 1];
    return 2.32635 + 3.7291 / freedom + 5.7197 / (freedom * freedom);
}

/* Whether the probability that a samples are all on one side of b others by chance is at most
 * SERIES_LEVEL: 2 of all the ways to mix them. */
static bool order_tells(size_t a, size_t b)
{
    double ways = 1.0;

    for (size_t i = 1; i <= a && ways < 1e6; i++)
        ways *= (double)(b + i) / (double)i;
    return 2.0 <= SERIES_LEVEL * ways;
}

bool series_differ(const struct series_figures *a, const struct series_figures *b)
{
    double va, vb, v;

    if (a->n < 2 || b->n < 2)
        return false;
    /* an outlier spoils every variance, but not the order */
    if (order_tells(a->n, b->n) && (a->max < b->min || b->max < a->min))
        return true;
    va = a->sd * a->sd / (double)a->n;
    vb = b->sd * b->sd / (double)b->n;
    v = va + vb;
    if (v <= 0.0)
        return a->mean != b->mean;
    return fabs(a->mean - b->mean) >
           student(v * v / (va * va / (double)(a->n - 1) + vb * vb / (double)(b->n - 1))) * sqrt(v);
}

/* How much the variance exceeds that of independent samples: (1 + r) / (1 - r) for the correlation
 * r between neighbours, corrected for small samples; never below 1. */
static double widening(const double *v, size_t n, double mean, double squares)
{
    double products = 0.0, r;

    for (size_t i = 1; i < n; i++)
        products += (v[i] - mean) * (v[i - 1] - mean);
    r = fmin(products / squares + 1.0 / (double)n, 0.9);
    return r > 0.0 ? (1.0 + r) / (1.0 - r) : 1.0;
}

bool series_pairs_differ(const double *differences, size_t n)
{
    const double *v = differences + n % 2;
    double mean = 0.0, squares = 0.0, variance;

    n -= n % 2;
    if (n < SERIES_PAIRS)
        return false;
    for (size_t i = 0; i < n; i++)
        mean += v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    if (squares <= 0.0)
        return mean != 0.0;
    variance = squares / (double)(n - 1) / (double)n * widening(v, n, mean, squares);
    return fabs(mean) > student((double)(n - 1)) * sqrt(variance);
}
