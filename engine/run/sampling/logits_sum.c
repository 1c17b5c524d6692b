/* See logits_sum.h. */
#include "engine/run/sampling/logits_sum.h"

#include "engine/device/numerics.h"

#include <math.h>

#define BLOCK 64

float logits_greatest(const float *x, int n)
{
    float lanes[NUM_LANES], max = -INFINITY;
    int i = 0;

    for (int j = 0; j < NUM_LANES; j++)
        lanes[j] = -INFINITY;
    for (; i + NUM_LANES <= n; i += NUM_LANES)
        for (int j = 0; j < NUM_LANES; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int j = 0; j < NUM_LANES; j++)
        max = lanes[j] > max ? lanes[j] : max;
    return max;
}

/* A block of a size known to the compiler: it then uses the widest vectors the function may have.
 */
static inline __attribute__((always_inline)) void add_exps(double *lanes, const float *x, float max)
{
    float d[BLOCK];

    for (int i = 0; i < BLOCK; i++)
        d[i] = num_exp(x[i] == x[i] ? x[i] - max : -INFINITY);
    for (int n = BLOCK / 2; n >= NUM_LANES; n /= 2)
        for (int i = 0; i < n; i++)
            d[i] += d[i + n];
    for (int i = 0; i < NUM_LANES; i++)
        lanes[i] += (double)d[i];
}

static void add_exps_plain(double *lanes, const float *x, float max)
{
    add_exps(lanes, x, max);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void add_exps_avx2(double *lanes, const float *x,
                                                              float max)
{
    add_exps(lanes, x, max);
}
#endif

double logits_exp_sum(const float *x, int n, float max)
{
    void (*add)(double *lanes, const float *x, float max) = add_exps_plain;
    double lanes[NUM_LANES] = {0}, sum = 0.0;
    float rest[BLOCK];
    int whole = n / BLOCK * BLOCK;

#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        add = add_exps_avx2;
#endif
    for (int i = 0; i < whole; i += BLOCK)
        add(lanes, x + i, max);
    for (int i = 0; i < BLOCK; i++)
        rest[i] = whole + i < n ? x[whole + i] : -INFINITY;
    add(lanes, rest, max);
    for (int i = 0; i < NUM_LANES; i++)
        sum += lanes[i];
    return sum;
}
