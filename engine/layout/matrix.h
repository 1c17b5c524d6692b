/* A weight matrix as the kernels read it. Multiplication is y[r] = sum_c W[r][c] * x[c] (+
 * bias[r]).
 *
 * Float types (F32, F16, BF16): row-major as in the file (width 0), copied, or mapped in place
 * where memory has no room; any alignment of 2. Quantised types: row-interleaved groups of `width`
 * rows (16 for AVX-512 and OpenCL hosts with it, 8 for AVX2 and scalar), the last group padded with
 * zero rows. One layout for all devices. A group holds its blocks in column order; one block of a
 * group of Q4_0 / Q8_0 is scales   width x F16            row r at index r payload  4-byte words
 * word k of row r at index k * width + r where the payload words are those of the GGUF block: Q8_0
 * word k = elements 4k..4k+3, each XOR 0x80 (so: value + 128, unsigned); Q4_0 word k (0..3) = the
 * low nibbles are elements 4k..4k+3, the high nibbles elements 16+4k..16+4k+3, value nibble - 8.
 * Data is 64-byte aligned (mem_pages). Further types: engine/layout/format.h.
 * Owner: the model. Immutable after load: any thread. The one thing that changes is `raw`: while it
 * is not NULL the rows lie in the mapped file as GGUF has them, data is not filled yet, and only
 * the CPU device can multiply (engine/model/load.h). Whoever reads data calls model_settle first.
 */
#ifndef ENGINE_LAYOUT_MATRIX_H
#define ENGINE_LAYOUT_MATRIX_H

#include "engine/file/dtype.h"

#include <stdatomic.h>
#include <stdint.h>

struct matrix {
    enum dtype type;
    int rows, cols;
    int width; /* rows interleaved; 0: row-major */
    const void *data;
    size_t bytes;      /* of data, padding included */
    const float *bias; /* rows values or NULL; owned by the model */
    /* the same rows, row-major, of the same type, until they are packed; then NULL */
    _Atomic(const uint8_t *) raw;
};

#endif
