/* Inside engine/model only: matrices whose rows do not lie one behind the other in their tensor:
 * transposed ones, rows of two matrices taking turns, and packed ones. They are gathered a few rows
 * at a time while they are loaded. Pure; any thread. */
#ifndef ENGINE_MODEL_GATHER_H
#define ENGINE_MODEL_GATHER_H

#include "engine/model/bind.h"

/* Rows gathered at a time at most: those of a group. */
#define GATHER_ROWS 16

/* The type of a job's rows as they come from the file. */
enum dtype gather_type(const struct matrix_job *j);
/* n rows from one on, row-major, of gather_type. */
void gather_rows(const struct matrix_job *j, int first, int n, uint8_t *out);
/* The values of a row, where the tensor is packed. */
void gather_values(const struct matrix_job *j, int row, float *out);
/* What of the tensor's bytes all of its rows lie in. */
void gather_span(const struct matrix_job *j, size_t *offset, size_t *bytes);

#endif
