/* Inside engine/model only: matrices whose rows are not consecutive in their tensor: transposed
 * ones, alternating rows of two matrices, heads of several experts, and packed ones. They are
 * gathered a few rows at a time during loading. Pure; any thread. */
#ifndef ENGINE_MODEL_GATHER_H
#define ENGINE_MODEL_GATHER_H

#include "engine/model/bind.h"

/* Most rows gathered at a time: those of a group. */
#define GATHER_ROWS 16

/* The type of a job's rows as read from the file. */
enum dtype gather_type(const struct matrix_job *j);
/* n rows from `first` on, row-major, of gather_type. */
void gather_rows(const struct matrix_job *j, int first, int n, uint8_t *out);
/* The values of a row, if the tensor is packed. */
void gather_values(const struct matrix_job *j, int row, float *out);
/* The range of the tensor's bytes that contains all of its rows. */
void gather_span(const struct matrix_job *j, size_t *offset, size_t *bytes);

#endif
