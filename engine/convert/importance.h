/* An importance matrix of llama.cpp (GGUF): for each matrix, and each expert of it, the sum of the
 * squares of what its columns met, and how many rows that were (one number, where all of a tensor's
 * matrices meet the same, as those of heads do). Owner: the caller of open;
 * immutable, any thread reads. */
#ifndef ENGINE_CONVERT_IMPORTANCE_H
#define ENGINE_CONVERT_IMPORTANCE_H

#include "engine/base/error.h"

#include <stdbool.h>

struct importance;

/* ERR_IO, ERR_MODEL; ERR_INPUT: no importance matrix. */
int importance_open(struct importance **out, const char *path, struct error *e);
void importance_close(struct importance *i); /* accepts NULL */
/* Of matrix `index` (an expert; 0) of a tensor with `cols` columns and `count` matrices: `cols`
 * numbers to `row`, none of them 0. false: nothing is known of it, for nothing met that expert. The
 * shape was checked. */
bool importance_row(const struct importance *i, const char *tensor, int index, int count, int cols,
                    float *row);
/* Whether all that is known of a tensor has this shape. ERR_INPUT */
int importance_check(const struct importance *i, const char *tensor, int count, int cols,
                     struct error *e);

#endif
