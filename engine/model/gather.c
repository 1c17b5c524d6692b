/* See gather.h. */
#include "engine/model/gather.h"

#include <string.h>

enum dtype gather_type(const struct matrix_job *j)
{
    return j->tensor->type;
}

/* Column by column: what is read together lies together. */
static void transpose(const struct matrix_job *j, const uint8_t *from, int n, uint8_t *out)
{
    size_t unit = (size_t)dtype_info(gather_type(j))->bytes, row = unit * (size_t)j->matrix->cols;

    for (int c = 0; c < j->matrix->cols; c++, from += j->col_step)
        for (int r = 0; r < n; r++)
            memcpy(out + (size_t)r * row + (size_t)c * unit, from + (size_t)r * j->row_step, unit);
}

void gather_rows(const struct matrix_job *j, int first, int n, uint8_t *out)
{
    const uint8_t *from = (const uint8_t *)j->tensor->data + j->from + (size_t)first * j->row_step;
    size_t row = dtype_row_bytes(gather_type(j), j->matrix->cols);

    if (j->col_step) {
        transpose(j, from, n, out);
        return;
    }
    for (int r = 0; r < n; r++)
        memcpy(out + (size_t)r * row, from + (size_t)r * j->row_step, row);
}

size_t gather_span(const struct matrix_job *j)
{
    const struct matrix *m = j->matrix;
    size_t unit = (size_t)dtype_info(gather_type(j))->bytes;

    return (size_t)(m->rows - 1) * j->row_step + (j->col_step
                                                      ? (size_t)(m->cols - 1) * j->col_step + unit
                                                      : dtype_row_bytes(gather_type(j), m->cols));
}
