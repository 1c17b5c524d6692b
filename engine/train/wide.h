/* Inner loops of training besides the products, compiled for each instruction set and run in the
 * widest available. Plain functions, any thread. */
#ifndef ENGINE_TRAIN_WIDE_H
#define ENGINE_TRAIN_WIDE_H

#include "engine/file/dtype.h"

#include <stdint.h>

/* n rows of `count` values at a distance of row_bytes, consecutive in out: the values of row_to_f32
 * (engine/layout/pack.h) bit by bit. */
void dequantise_rows(enum dtype type, const uint8_t *from, size_t row_bytes, int n, int count,
                     float *out);
/* x[i] = exp(x[i] - less), to 2e-7 of it; 0 below exp(-87). */
void exp_all(float *x, int n, float less);

/* The functions for one instruction set; used only by wide.c. */
struct wide {
    /* one row of F16, BF16, Q8_0 or Q4_0 */
    void (*dequantise_row)(enum dtype type, const uint8_t *p, int n, float *out);
    void (*exp_all)(float *x, int n, float less);
};
extern const struct wide wide_avx2, wide_avx512;

#endif
