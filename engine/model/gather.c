/* See gather.h. */
#include "engine/model/gather.h"

#include "engine/base/mem.h"
#include "engine/file/blocks.h"
#include "engine/file/packed.h"
#include "engine/layout/pack.h"

#include <string.h>

/* Row r of two tensors, one beside the other. */
static void join_columns(const struct matrix_job *j, int r, uint8_t *out)
{
    const struct tensor_view *const parts[] = {j->tensor, j->beside};
    enum dtype type = job_type(j);

    for (int i = 0; i < 2; i++) {
        const struct tensor_view *t = parts[i];
        int cols = (int)t->dims[1];
        const uint8_t *from = t->packed ? NULL
                                        : (const uint8_t *)t->data +
                                              (size_t)r * dtype_row_bytes(t->type, cols);

        if (t->packed)
            packed_values(t, r, (float *)(void *)out);
        else if (t->type == type)
            memcpy(out, from, dtype_row_bytes(type, cols));
        else
            row_to_f32(t->type, from, cols, (float *)(void *)out);
        out += dtype_row_bytes(type, cols);
    }
}

/* Column by column: memory that is read together is contiguous. */
static void transpose(const struct matrix_job *j, const uint8_t *from, int n, uint8_t *out)
{
    size_t unit = (size_t)dtype_info(job_type(j))->bytes, row = unit * (size_t)j->matrix->cols;

    for (int c = 0; c < j->matrix->cols; c++, from += j->col_step)
        for (int r = 0; r < n; r++)
            memcpy(out + (size_t)r * row + (size_t)c * unit, from + (size_t)r * j->row_step, unit);
}

/* The job's rows among those of a packed tensor. */
static int64_t packed_first(const struct matrix_job *j, int *step)
{
    size_t row = dtype_row_bytes(job_type(j), j->matrix->cols);

    *step = j->row_step ? (int)(j->row_step / row) : 1;
    return (int64_t)(j->from / row);
}

static void gather_packed(const struct matrix_job *j, int first, int n, uint8_t *out)
{
    size_t row = dtype_row_bytes(job_type(j), j->matrix->cols);
    int step, most;
    int64_t at = packed_first(j, &step) + (int64_t)first * step;

    for (; n > 0; n -= most, at += (int64_t)most * step, out += (size_t)most * row) {
        most = n < PACKED_ROWS ? n : PACKED_ROWS;
        packed_rows(j->tensor, at, step, most, out);
    }
}

void gather_values(const struct matrix_job *j, int row, float *out)
{
    int step;
    int64_t first = packed_first(j, &step);

    packed_values(j->tensor, first + (int64_t)row * step, out);
}

/* Row r of a matrix of heads that are regrouped. */
static void regroup(const struct matrix_job *j, int r, uint8_t *out)
{
    const struct job_heads *h = &j->heads;
    const uint8_t *from = j->tensor->data;
    size_t row = dtype_row_bytes(job_type(j), j->matrix->cols), part = row / (size_t)h->experts,
           each = part / (size_t)h->heads;
    int head = r / h->dim, at;

    if (!h->columns) {
        at = (head % h->experts * h->heads + head / h->experts) * h->dim + r % h->dim;
        memcpy(out, from + (size_t)at * row, row);
        return;
    }
    for (int i = 0; i < h->heads * h->experts; i++) {
        size_t of = (size_t)(i % h->experts) * (size_t)j->matrix->rows + (size_t)r;

        memcpy(out + (size_t)i * each, from + of * part + (size_t)(i / h->experts) * each, each);
    }
}

void gather_rows(const struct matrix_job *j, int first, int n, uint8_t *out)
{
    const uint8_t *from = (const uint8_t *)j->tensor->data + j->from + (size_t)first * j->row_step;
    size_t row = dtype_row_bytes(job_type(j), j->matrix->cols);

    for (int r = 0; r < n && j->beside; r++)
        join_columns(j, first + r, out + (size_t)r * row);
    if (j->beside)
        return;
    if (j->tensor->packed) {
        gather_packed(j, first, n, out);
        return;
    }
    if (j->col_step) {
        transpose(j, from, n, out);
        return;
    }
    for (int r = 0; r < n && j->heads.experts; r++)
        regroup(j, first + r, out + (size_t)r * row);
    if (j->heads.experts)
        return;
    for (int r = 0; r < n; r++)
        memcpy(out + (size_t)r * row, from + (size_t)r * j->row_step, row);
}

const struct tensor_view *gather_broken(const struct matrix_job *j)
{
    const struct tensor_view *t = j->tensor;
    int cols = (int)t->dims[t->n_dims - 1];
    float *row = j->beside ? mem_alloc((size_t)cols, sizeof *row) : NULL;
    bool finite = row != NULL;

    for (int r = 0; r < j->matrix->rows && finite; r++) {
        size_t bytes = dtype_row_bytes(t->type, cols);

        if (t->packed)
            packed_values(t, r, row);
        else
            row_to_f32(t->type, (const uint8_t *)t->data + (size_t)r * bytes, cols, row);
        finite = blocks_finite(DTYPE_F32, row, (size_t)cols * sizeof *row);
    }
    mem_free(row);
    return finite ? j->beside : t;
}

void gather_span(const struct matrix_job *j, size_t *offset, size_t *bytes)
{
    const struct matrix *m = j->matrix;
    size_t unit = (size_t)dtype_info(job_type(j))->bytes;
    int64_t first;
    int step;

    if (j->tensor->packed) {
        first = packed_first(j, &step);
        packed_span(j->tensor, j->split.stride ? 0 : first,
                    j->split.stride ? j->tensor->packed->rows : (int64_t)(m->rows - 1) * step + 1,
                    offset, bytes);
        return;
    }
    if (j->heads.experts || j->beside) {
        *offset = 0;
        *bytes = j->tensor->bytes;
        return;
    }
    *offset = j->from;
    *bytes = (size_t)(m->rows - 1) * j->row_step + (j->col_step
                                                        ? (size_t)(m->cols - 1) * j->col_step + unit
                                                        : dtype_row_bytes(job_type(j), m->cols));
}
