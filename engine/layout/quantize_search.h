/* Inside engine/layout only (and tests): finds the scales of blocks, for quantize.c and
 * quantize_low.c. Pure; any thread. */
#ifndef ENGINE_LAYOUT_QUANTIZE_SEARCH_H
#define ENGINE_LAYOUT_QUANTIZE_SEARCH_H

#include "engine/base/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The searches, one build per instruction set: same results to the bit, eight lanes in any case. n
 * a multiple of 8, at most 32; weight: n, of each squared error. */
struct quantise_search {
    /* x ~ s * q, q in -half .. half-1; returns s, least weighted squared error. */
    float (*symmetric)(const float *x, const float *weight, int n, int half);
    /* x ~ s * q - min, q in 0 .. top; min is not negative where `subtract`. Returns s. */
    float (*affine)(const float *x, const float *weight, int n, int top, bool subtract, float *min);
    /* x ~ s * table[q], sixteen values in ascending order; returns s. */
    float (*codebook)(const float *x, const float *weight, int n, const int8_t *table);
};
extern const struct quantise_search quantise_search_plain, quantise_search_avx2;
/* The fastest build that runs on this CPU. */
const struct quantise_search *quantise_search_here(void);

/* Weights of the n errors. Without importance x^2 (where codes have a sign) or the root mean square
 * + |x|: the product sees the error relative to the element. With it the importance times sqrt(mean
 * square + x^2). */
void quantise_weights_symmetric(const float *x, const float *importance, int n, float *weight);
void quantise_weights_affine(const float *x, const float *importance, int n, float *weight);

static inline int quantise_nearest(float x, int low, int high)
{
    float r = rintf(x);

    return r <= (float)low ? low : r >= (float)high ? high : (int)r;
}

static inline void quantise_put_half(uint8_t *p, float x)
{
    uint16_t h = num_to_f16(x);

    memcpy(p, &h, 2);
}

static inline float quantise_half_at(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, 2);
    return num_from_f16(h);
}

#endif
