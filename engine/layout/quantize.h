/* Quantises rows to the types of files, for --quantize. Pure functions, any thread, no allocation.
 * F16, BF16, Q8_0 and Q4_0 are ggml's reference rounding, bit by bit; the others search for the
 * scales (and minima) with the least squared error, weighted by the magnitude of the elements and,
 * if known, by the importance of the input columns: then Q4_0 is searched for as well. The formats
 * are exact either way: any reader reads them. */
#ifndef ENGINE_LAYOUT_QUANTIZE_H
#define ENGINE_LAYOUT_QUANTIZE_H

#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stdint.h>

bool quantise_known(enum dtype type);
/* n elements, a multiple of the type's block. Non-finite elements count as 0. importance: n
 * non-negative numbers, the mean square of each column's inputs (an importance matrix), or NULL:
 * all equal. */
void quantise_row(enum dtype type, const float *x, const float *importance, int64_t n, void *out);

#endif
