/* Inside engine/model only: matrices whose rows are not consecutive in their tensor: transposed
 * ones, alternating rows of two matrices, heads of several experts, two tensors one beside the
 * other, and packed ones. They are gathered a few rows at a time during loading. Any thread. */
#ifndef ENGINE_MODEL_GATHER_H
#define ENGINE_MODEL_GATHER_H

#include "engine/model/bind.h"

/* Most rows gathered at a time: those of a group. */
#define GATHER_ROWS 16

/* n rows from `first` on, row-major, of job_type. */
void gather_rows(const struct matrix_job *j, int first, int n, uint8_t *out);
/* The values of a row, if the tensor is packed and stands alone. */
void gather_values(const struct matrix_job *j, int row, float *out);
/* Of a job with a value that is not finite, the tensor that has it. */
const struct tensor_view *gather_broken(const struct matrix_job *j);
/* The range of the tensor's bytes that contains all of its rows; of two, the first one's. */
void gather_span(const struct matrix_job *j, size_t *offset, size_t *bytes);

#endif
