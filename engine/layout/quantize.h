/* Rounding rows to the types of files: what --quantize writes. Pure functions, any thread, no
 * allocation. F16, BF16, Q8_0 and Q4_0 are ggml's reference rounding, bit by bit; Q4_1, Q5_0 and
 * Q5_1 and the K types search for the scales (and minima) with the least squared error, weighted by
 * the magnitude of the elements. The formats are exact either way: any reader reads them. */
#ifndef ENGINE_LAYOUT_QUANTIZE_H
#define ENGINE_LAYOUT_QUANTIZE_H

#include "engine/file/dtype.h"

#include <stdbool.h>

bool quantise_known(enum dtype type);
/* n elements, a multiple of the type's block. Not finite elements count as 0. */
void quantise_row(enum dtype type, const float *x, int64_t n, void *out);

/* The two searches, once a build of them: same results to the bit, eight lanes in any case. n a
 * multiple of 8, at most 32. */
struct quantise_search {
    /* x ~ s * q, q in -half .. half-1; returns s, least weighted squared error. */
    float (*symmetric)(const float *x, int n, int half);
    /* x ~ s * q - min, q in 0 .. top; min is not negative where `subtract`. Returns s. */
    float (*affine)(const float *x, int n, int top, bool subtract, float *min);
};
extern const struct quantise_search quantise_search_plain, quantise_search_avx2;

#endif
