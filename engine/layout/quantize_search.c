/* See quantize_search.h: the portable searches, the choice of the build for this CPU, and the
 * weights of errors. */
#include "engine/layout/quantize_search.h"

#include "engine/layout/quantize_search.inc"

const struct quantise_search quantise_search_plain = {fit_symmetric, fit_affine, fit_codebook};

const struct quantise_search *quantise_search_here(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") ? &quantise_search_avx2 : &quantise_search_plain;
#else
    return &quantise_search_plain;
#endif
}

static float mean_square(const float *x, int n)
{
    float squares = 0.0f;

    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    return squares / (float)n;
}

static void weigh_importance(const float *x, const float *importance, int n, float *weight)
{
    float mean = mean_square(x, n);

    for (int i = 0; i < n; i++)
        weight[i] = importance[i] * sqrtf(mean + x[i] * x[i]);
}

void quantise_weights_symmetric(const float *x, const float *importance, int n, float *weight)
{
    if (importance) {
        weigh_importance(x, importance, n, weight);
        return;
    }
    for (int i = 0; i < n; i++)
        weight[i] = x[i] * x[i];
}

void quantise_weights_affine(const float *x, const float *importance, int n, float *weight)
{
    float root;

    if (importance) {
        weigh_importance(x, importance, n, weight);
        return;
    }
    root = sqrtf(mean_square(x, n));
    for (int i = 0; i < n; i++)
        weight[i] = root + fabsf(x[i]);
}
