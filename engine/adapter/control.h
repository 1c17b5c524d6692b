/* Control vectors: a direction a layer that is added to the residual stream behind it
 * (representation engineering, Zou et al. 2023, arXiv:2310.01405). Files as llama.cpp writes and
 * reads them (tools/cvector-generator, common_control_vector_load, llama-adapter.cpp): architecture
 * controlvector, F32 tensors direction.N of the model's width, N from 1; direction.N is added
 * behind layer N, layers being numbered from 0. Immutable; any thread. */
#ifndef ENGINE_ADAPTER_CONTROL_H
#define ENGINE_ADAPTER_CONTROL_H

#include "engine/adapter/adapter.h"
#include "engine/model/model.h"

struct control_vectors {
    int layers, hidden, used; /* used: layers with a direction */
    float **at;               /* (layers), hidden values each; NULL: none */
    float *values;            /* what they point into */
    uint64_t hash;            /* of all values, not 0; written to disk */
};

/* The sum of n files' directions, each times its strength, in the layers first .. last (0 and 0:
 * all). ERR_MODEL: no such file, other widths, a layer that the model does not have, values that
 * are not finite; ERR_IO, ERR_MEMORY; ERR_USAGE: a range that is none. */
int control_vectors_open(struct control_vectors **out, const struct model *m,
                         const struct adapter_request *asked, int n, int first, int last,
                         struct error *e);
/* Bytes that they take in memory; NULL: 0. */
uint64_t control_vectors_bytes(const struct control_vectors *c);
void control_vectors_free(struct control_vectors *c); /* accepts NULL */

/* x (rows, hidden) behind the layer: x + direction, in F32. */
void control_vectors_add(const struct control_vectors *c, int layer, float *x, int rows);

#endif
