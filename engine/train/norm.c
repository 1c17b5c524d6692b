/* See norm.h. Sums are in double, in LANES parallel partial sums, which are added at the end. */
#include "engine/train/norm.h"

#include <math.h>

#define LANES 8

static double sum_of(const double *lanes)
{
    double sum = 0.0;

    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

struct moments {
    float mean, r; /* r: 1 / the deviation */
};

static struct moments moments_of(enum norm_kind kind, float eps, const float *x, int n)
{
    double sums[LANES] = {0}, squares[LANES] = {0}, mean;
    int i;

    for (i = 0; kind == NORM_LAYER && i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sums[j] += (double)x[i + j];
    for (; kind == NORM_LAYER && i < n; i++)
        sums[0] += (double)x[i];
    mean = sum_of(sums) / n;
    for (i = 0; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            squares[j] += ((double)x[i + j] - mean) * ((double)x[i + j] - mean);
    for (; i < n; i++)
        squares[0] += ((double)x[i] - mean) * ((double)x[i] - mean);
    return (struct moments){(float)mean, (float)(1.0 / sqrt(sum_of(squares) / n + (double)eps))};
}

void norm_forward(enum norm_kind kind, float eps, const float *weight, const float *bias,
                  const float *x, int n, float *y)
{
    struct moments m = moments_of(kind, eps, x, n);

    for (int i = 0; i < n; i++)
        y[i] = (x[i] - m.mean) * m.r * weight[i] + (bias ? bias[i] : 0.0f);
}

/* With h = (x - mean) r and g = dy w: dx = r (g - mean(g) - h mean(g h)), without the first mean if
 * the norm subtracts none. */
void norm_backward(enum norm_kind kind, float eps, const float *weight, const float *x,
                   const float *dy, int n, float *dx)
{
    struct moments m = moments_of(kind, eps, x, n);
    double sum = 0.0, along = 0.0;
    float mean, share;

    for (int i = 0; i < n; i++) {
        double g = (double)dy[i] * (double)weight[i];

        sum += g;
        along += g * (double)((x[i] - m.mean) * m.r);
    }
    mean = kind == NORM_LAYER ? (float)(sum / n) : 0.0f;
    share = (float)(along / n);
    for (int i = 0; i < n; i++)
        dx[i] += m.r * (dy[i] * weight[i] - mean - (x[i] - m.mean) * m.r * share);
}
