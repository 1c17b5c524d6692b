/* Figures by formula; see report.h. Pure. */
#include "app/lab/report.h"

#include "engine/base/mem.h"
#include "engine/base/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_LEAST 32 /* tokens: neighbours are not independent */
#define BLOCKS_MOST 1024

static double sum_of(const double *v, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

double figure_entropy(const double *counts, int n)
{
    double sum = sum_of(counts, n), h = 0;

    for (int i = 0; i < n && sum > 0; i++)
        if (counts[i] > 0)
            h -= counts[i] / sum * log2(counts[i] / sum);
    return h;
}

double figure_gini(const double *counts, int n, double *room)
{
    double sum = sum_of(counts, n), ranked = 0;

    memcpy(room, counts, (size_t)n * sizeof *room);
    qsort(room, (size_t)n, sizeof *room, series_compare);
    for (int i = 0; i < n; i++)
        ranked += (i + 1) * room[i];
    return sum > 0 ? 2 * ranked / (n * sum) - (n + 1.0) / n : 0;
}

double figure_max_mean(const double *counts, int n)
{
    double sum = sum_of(counts, n), most = 0;

    for (int i = 0; i < n; i++)
        most = fmax(most, counts[i]);
    return sum > 0 ? most * n / sum : 0;
}

double figure_divergence(const double *a, const double *b, int n)
{
    double sa = sum_of(a, n), sb = sum_of(b, n), js = 0;

    for (int i = 0; i < n && sa > 0 && sb > 0; i++) {
        double p = a[i] / sa, q = b[i] / sb, m = (p + q) / 2;

        js += p > 0 ? p * log2(p / m) / 2 : 0;
        js += q > 0 ? q * log2(q / m) / 2 : 0;
    }
    return js;
}

/* Regularised upper incomplete gamma function: its series below a + 1, else its continued fraction
 * (Abramowitz and Stegun 6.5.29, 6.5.31). */
static double gamma_q(double a, double x)
{
    double front, sum, term, b, c, d, h;

    if (x <= 0)
        return 1;
    front = exp(-x + a * log(x) - lgamma(a));
    if (x < a + 1) {
        sum = term = 1 / a;
        for (int n = 1; n < 100000 && term > sum * 1e-16; n++)
            sum += term *= x / (a + n);
        return fmax(0, 1 - sum * front);
    }
    b = x + 1 - a;
    c = 1e300;
    d = 1 / b;
    h = d;
    for (int n = 1; n < 100000; n++) {
        double an = -n * (n - a), step;

        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        step = c * d;
        h *= step;
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return front * h;
}

struct chi_square figure_chi_square(const double *table, int rows, int columns)
{
    struct chi_square t = {.p = 1, .p_holm = 1};
    double all = sum_of(table, rows * columns);
    int full_rows = 0, full_columns = 0;

    for (int r = 0; r < rows; r++)
        full_rows += sum_of(table + r * columns, columns) > 0;
    for (int k = 0; k < columns; k++) {
        double column = 0;

        for (int r = 0; r < rows; r++)
            column += table[r * columns + k];
        full_columns += column > 0;
        for (int r = 0; r < rows && column > 0; r++) {
            double expected = sum_of(table + r * columns, columns) * column / all,
                   off = table[r * columns + k] - expected;

            t.chi2 += expected > 0 ? off * off / expected : 0;
        }
    }
    t.n = (uint64_t)all;
    if (full_rows < 2 || full_columns < 2)
        return (struct chi_square){.p = 1, .p_holm = 1, .n = t.n};
    t.dof = (full_rows - 1) * (full_columns - 1);
    t.p = gamma_q(t.dof / 2.0, t.chi2 / 2);
    t.v = sqrt(t.chi2 / (all * ((full_rows < full_columns ? full_rows : full_columns) - 1)));
    return t;
}

static int by_p(const void *a, const void *b)
{
    const struct chi_square *x = *(struct chi_square *const *)a,
                            *y = *(struct chi_square *const *)b;

    return (x->p > y->p) - (x->p < y->p);
}

int figure_holm(struct chi_square *const *tests, size_t n, struct error *e)
{
    struct chi_square **sorted = mem_alloc(n + 1, sizeof *sorted);
    double most = 0;
    size_t m = 0;

    if (!sorted)
        return error_set(e, ERR_MEMORY, "out of memory for the tests");
    for (size_t i = 0; i < n; i++)
        if (tests[i]->dof)
            sorted[m++] = tests[i];
    qsort(sorted, m, sizeof *sorted, by_p);
    for (size_t i = 0; i < m; i++) {
        most = fmax(most, fmin(1, (double)(m - i) * sorted[i]->p));
        sorted[i]->p_holm = most;
    }
    mem_free(sorted);
    return 0;
}

void figure_interval(double *values, struct spanned *out)
{
    int off = (int)(0.025 * (REPORT_SAMPLES - 1));

    qsort(values, REPORT_SAMPLES, sizeof *values, series_compare);
    out->low = values[off];
    out->high = values[REPORT_SAMPLES - 1 - off];
}

uint64_t figure_block(uint64_t n)
{
    uint64_t length = (n + BLOCKS_MOST - 1) / BLOCKS_MOST;

    return length < BLOCK_LEAST ? BLOCK_LEAST : length;
}

uint64_t figure_draw(uint64_t *state, uint64_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint64_t)((double)((z ^ z >> 31) >> 11) * 0x1p-53 * (double)n);
}
