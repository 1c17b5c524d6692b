/* Computes an importance matrix: while a text runs through a model, the squares of each matrix's
 * input are summed by column, as in llama.cpp's llama-imatrix, and written as its GGUF file. The
 * matrices are named as the tensors of the model's GGUF file, or by its family's table. Owner: the
 * caller of new. importance_squares is called by compute threads (device_observer), the rest by
 * one. */
#ifndef ENGINE_CONVERT_IMPORTANCE_GATHER_H
#define ENGINE_CONVERT_IMPORTANCE_GATHER_H

#include "engine/base/error.h"
#include "engine/model/model.h"

struct importance_gather;

/* m outlives it. ERR_MEMORY, ERR_MODEL: its family's matrices have no names in GGUF. */
int importance_gather_new(struct importance_gather **out, const struct model *m, struct error *e);
void importance_gather_free(struct importance_gather *g); /* accepts NULL */
/* device_observer.squares_of; ctx: the gatherer. */
float *importance_squares(void *ctx, const struct matrix *w, int row, int n);
struct importance_about {
    const char *text; /* the text it was computed from, for imatrix.datasets */
    int chunks, chunk_tokens;
};
/* path is replaced completely or not at all. ERR_IO, ERR_MEMORY. *experts, *unmet: routed experts,
 * and how many of them got no token. */
int importance_gather_write(const struct importance_gather *g, const char *path,
                            const struct importance_about *about, int *experts, int *unmet,
                            struct error *e);

#endif
