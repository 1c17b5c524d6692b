/* The inner loops of training beside the products, compiled for each instruction set and run in the
 * widest there is. Plain functions, any thread. */
#ifndef ENGINE_TRAIN_WIDE_H
#define ENGINE_TRAIN_WIDE_H

#include "engine/file/dtype.h"

#include <stdint.h>

/* n rows of `count` values that begin row_bytes apart, one behind the other in out: the values of
 * row_to_f32 (engine/layout/pack.h) bit by bit. */
void dequantise_rows(enum dtype type, const uint8_t *from, size_t row_bytes, int n, int count,
                     float *out);
/* x[i] = exp(x[i] - less), to 2e-7 of it; 0 below exp(-87). */
void exp_all(float *x, int n, float less);

/* What a set of instructions has; only wide.c calls it, where it found them. */
struct wide {
    /* one row of F16, BF16, Q8_0 or Q4_0 */
    void (*dequantise_row)(enum dtype type, const uint8_t *p, int n, float *out);
    void (*exp_all)(float *x, int n, float less);
};
extern const struct wide wide_avx2, wide_avx512;

#endif
