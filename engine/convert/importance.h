/* An importance matrix of llama.cpp (GGUF): for each matrix, and each of its experts, the sum of
 * the squares of its input columns, and the number of rows (one number if all of a tensor's
 * matrices have the same input, as those of heads). Owner: the caller of open; immutable, any
 * thread reads. */
#ifndef ENGINE_CONVERT_IMPORTANCE_H
#define ENGINE_CONVERT_IMPORTANCE_H

#include "engine/base/error.h"

#include <stdbool.h>

struct importance;

/* ERR_IO, ERR_MODEL; ERR_INPUT: no importance matrix. */
int importance_open(struct importance **out, const char *path, struct error *e);
void importance_close(struct importance *i); /* accepts NULL */
/* Of matrix `index` (an expert; 0) of a tensor with `cols` columns and `count` matrices: writes
 * `cols` numbers to `row`, none of them 0. false: no data, since no row reached that expert. The
 * shape must have been checked. */
bool importance_row(const struct importance *i, const char *tensor, int index, int count, int cols,
                    float *row);
/* Checks that a tensor's data has this shape. ERR_INPUT */
int importance_check(const struct importance *i, const char *tensor, int count, int cols,
                     struct error *e);

#endif
