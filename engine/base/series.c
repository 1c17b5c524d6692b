/* See series.h. */
#include "engine/base/series.h"

#include "engine/base/mem.h"

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
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        double *more = mem_resize(s->values, room, sizeof *more);

        if (!more)
            return -1;
        s->values = more;
        s->room = room;
    }
    s->values[s->n++] = value;
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_percentile(const double *sorted, size_t n, double percent)
{
    double at;
    size_t i;

    if (!n)
        return 0.0;
    at = (double)(n - 1) * fmin(fmax(percent, 0.0), 100.0) / 100.0;
    i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

void series_summarise_sorted(double *values, size_t n, struct series_figures *out)
{
    double squares = 0.0;

    memset(out, 0, sizeof *out);
    if (!n)
        return;
    qsort(values, n, sizeof *values, compare);
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

/* Two-sided 95 % quantile of Student's t: the table up to 30 degrees of freedom, then its usual expansion. */
static double student_95(double freedom)
{
    static const double table[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
                                   2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};

    if (freedom < 30.0)
        return table[freedom < 1.0 ? 0 : (size_t)freedom - 1];
    return 1.95996 + 2.3722 / freedom + 2.82 / (freedom * freedom);
}

bool series_differ(const struct series_figures *a, const struct series_figures *b)
{
    double va, vb, v;

    if (a->n < 2 || b->n < 2)
        return false;
    /* A hiccup of the machine spoils every variance, but not the order: four and four samples lie apart by chance once in 35 times. */
    if (a->n >= 4 && b->n >= 4 && (a->max < b->min || b->max < a->min))
        return true;
    va = a->sd * a->sd / (double)a->n;
    vb = b->sd * b->sd / (double)b->n;
    v = va + vb;
    if (v <= 0.0)
        return a->mean != b->mean;
    return fabs(a->mean - b->mean) > student_95(v * v / (va * va / (double)(a->n - 1) + vb * vb / (double)(b->n - 1))) * sqrt(v);
}
