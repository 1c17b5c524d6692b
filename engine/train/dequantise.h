/* Rows of weights as F32, the inner loop of training beside the products: the values of row_to_f32
 * (engine/layout/pack.h) bit by bit, in the widest instructions there are. Plain functions, any
 * thread. */
#ifndef ENGINE_TRAIN_DEQUANTISE_H
#define ENGINE_TRAIN_DEQUANTISE_H

#include "engine/file/dtype.h"

#include <stdint.h>

/* n rows of `count` values that begin row_bytes apart, one behind the other in out. */
void dequantise_rows(enum dtype type, const uint8_t *from, size_t row_bytes, int n, int count,
                     float *out);

/* One row of F16, BF16, Q8_0 or Q4_0. Called only where dequantise.c found the instructions. */
void dequantise_row_avx2(enum dtype type, const uint8_t *p, int n, float *out);
void dequantise_row_avx512(enum dtype type, const uint8_t *p, int n, float *out);

#endif
