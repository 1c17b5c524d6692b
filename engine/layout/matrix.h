/* A weight matrix as the kernels read it. Multiplication is y[r] = sum_c W[r][c] * x[c] (+
 * bias[r]).
 *
 * Float types (F32, F16, BF16): row-major as in the file (width 0), copied, or mapped in place if
 * memory is short; any alignment of 2. Quantised types: row-interleaved groups of `width` rows (16
 * for AVX-512 and OpenCL hosts with it, 8 for AVX2 and scalar), the last group padded with zero
 * rows: engine/layout/format.h. One layout for all devices. Data is 64-byte aligned (mem_pages).
 * Owner: the model. Immutable after load: any thread. Only `raw` changes: while it is not NULL the
 * rows are in the mapped file as GGUF has them, data is not filled yet, and only the CPU device can
 * multiply (engine/model/load.h). Call model_settle before reading data. For experts that stay on
 * disk (paged) data is valid only while they are loaded. */
#ifndef ENGINE_LAYOUT_MATRIX_H
#define ENGINE_LAYOUT_MATRIX_H

#include "engine/file/dtype.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lora;

struct matrix {
    enum dtype type;
    int rows, cols;
    int width; /* rows interleaved; 0: row-major */
    const void *data;
    size_t bytes;      /* of data, padding included */
    const float *bias; /* rows values or NULL; owned by the model */
    /* NULL, or for a quantised type: column c is multiplied with element order[c] of the input,
     * which is permuted before it is quantised (GPTQ with act-order). Only on the CPU device; owned
     * by the weight file */
    const uint16_t *order;
    /* the same rows, row-major, of the same type, until they are packed; then NULL */
    _Atomic(const uint8_t *) raw;
    /* it is on disk: data is valid only while engine/model/expert_cache.h holds it */
    bool paged;
    /* NULL, or its adapters (lora.h). Only on the CPU device; owned by engine/adapter */
    const struct lora *lora;
};

/* Whether a matrix takes unquantised input rows: it is of floats, or has a column order or an
 * adapter. */
static inline bool matrix_takes_rows(const struct matrix *m)
{
    return !dtype_is_quantised(m->type) || m->order || m->lora;
}

/* Of those, whether the rows are still quantised at the multiplication. */
static inline bool matrix_rounds_rows(const struct matrix *m)
{
    return dtype_is_quantised(m->type) && (m->order || m->lora);
}

#endif
