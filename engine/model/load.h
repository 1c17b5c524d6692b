/* Inside engine/model only: executes the jobs of a binding. */
#ifndef ENGINE_MODEL_LOAD_H
#define ENGINE_MODEL_LOAD_H

#include "engine/model/bind.h"

/* Fills arena (b->arena bytes, 64-byte aligned) and sets the pointers of all matrices and vectors.
 * ERR_IO, ERR_VALUE, ERR_MEMORY, ERR_CANCELLED. */
int load_weights(struct binding *b, uint8_t *arena, struct error *e);
/* Stops the background packing threads, finished or not. NULL: nothing to do. */
void load_stop(struct load *l);

/* Only the vectors. */
void load_vectors(const struct binding *b, uint8_t *arena);

#endif
