/* Adapters added to the weights themselves, for who writes a model with them in: W + strength *
 * scale * B A, in F32. The model's adapters were opened with data (adapter.h). Pure functions of an
 * immutable model: any thread; but for merge_open, which hangs the adapters on: as adapters_open.
 */
#ifndef ENGINE_ADAPTER_MERGE_H
#define ENGINE_ADAPTER_MERGE_H

#include "engine/adapter/adapter.h"
#include "engine/model/block.h"

#include <stdbool.h>

#define MERGE_PARTS 3

/* The matrices whose rows a tensor of the model's file holds, one under the other, for each expert
 * anew where it is of all of them. */
struct merge_tensor {
    const struct model *model;
    struct block_id id; /* of one, or of the first of all experts */
    int experts;        /* it is of so many; 0: of one block */
    enum matrix_part parts[MERGE_PARTS];
    int n_parts;
    bool turned; /* it lies as (columns, rows) */
};

/* What the matrix's adapters add to row `row`: x (w->cols) += it. strengths: by adapter. */
void merge_row(const struct matrix *w, int row, const float *strengths, float *x);
/* Whether an adapter hangs on a matrix of the tensor. 1: it does; 0: none; ERR_MODEL: it does, and
 * its rows lie in an order that is not written. */
int merge_tensor_find(const struct model *m, const struct tensor_view *t, struct merge_tensor *out,
                      struct error *e);
/* Row `row` of the tensor, its last dimension long, likewise. */
void merge_tensor_row(const struct merge_tensor *t, int64_t row, const float *strengths, float *x);

/* Adapters that are to go into the weights of the model read from `in`, and their strengths.
 * ERR_MODEL where that cannot be: one on a head that is the embeddings too. What was opened is the
 * caller's to close in any case. */
int merge_open(struct adapters **out, float strengths[LORA_ADAPTERS], struct model *m,
               const struct adapter_request *asked, int n, const char *in, struct error *e);

#endif
