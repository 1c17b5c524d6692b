/* A weight matrix as the kernels read it. Multiplication is y[r] = sum_c W[r][c] * x[c] (+
 * bias[r]).
 *
 * Float types (F32, F16, BF16): row-major as in the file (width 0), copied, or mapped in place
 * where memory has no room; any alignment of 2. Quantised types: row-interleaved groups of `width`
 * rows (16 for AVX-512 and OpenCL hosts with it, 8 for AVX2 and scalar), the last group padded with
 * zero rows: engine/layout/format.h. One layout for all devices. Data is 64-byte aligned
 * (mem_pages).
 * Owner: the model. Immutable after load: any thread. The one thing that changes is `raw`: while it
 * is not NULL the rows lie in the mapped file as GGUF has them, data is not filled yet, and only
 * the CPU device can multiply (engine/model/load.h). Whoever reads data calls model_settle first.
 * Of experts that stay on the disk (paged) data comes and goes.
 */
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
    /* NULL, or of a quantised type: column c is meant for element order[c] of what it is multiplied
     * with, which is put into that order before it is quantised (GPTQ with act-order). The CPU
     * device alone does so; owned by the weight file */
    const uint16_t *order;
    /* the same rows, row-major, of the same type, until they are packed; then NULL */
    _Atomic(const uint8_t *) raw;
    /* it lies on the disk: data is there while engine/model/expert_cache.h says so */
    bool paged;
    /* NULL, or what hangs on it (lora.h). The CPU device alone adds it; owned by engine/adapter */
    const struct lora *lora;
};

/* Whether a matrix meets activations as floats: it is one of floats, has an order of its own, or an
 * adapter. */
static inline bool matrix_takes_rows(const struct matrix *m)
{
    return !dtype_is_quantised(m->type) || m->order || m->lora;
}

/* Of those, whether its rows are quantised all the same, where it is multiplied. */
static inline bool matrix_rounds_rows(const struct matrix *m)
{
    return dtype_is_quantised(m->type) && (m->order || m->lora);
}

#endif
