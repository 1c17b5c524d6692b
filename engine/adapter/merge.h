/* Merges adapters into weights, for writing a merged model: W + strength * scale * B A, in F32. The
 * model's adapters were opened with data (adapter.h). Pure functions of an immutable model: any
 * thread; except merge_open, which attaches the adapters: as adapters_open. */
#ifndef ENGINE_ADAPTER_MERGE_H
#define ENGINE_ADAPTER_MERGE_H

#include "engine/adapter/adapter.h"
#include "engine/model/block.h"

#include <stdbool.h>

#define MERGE_PARTS 3

/* The matrices stacked by rows in a tensor of the model's file, repeated for each expert if it is
 * of all experts. */
struct merge_tensor {
    const struct model *model;
    struct block_id id; /* of one, or of the first of all experts */
    int experts;        /* number of experts in it; 0: of one block */
    enum matrix_part parts[MERGE_PARTS];
    int n_parts;
    bool turned; /* stored as (columns, rows) */
};

/* Adds the adapters' contribution to row `row` to x (w->cols). strengths: by adapter. */
void merge_row(const struct matrix *w, int row, const float *strengths, float *x);
/* Whether an adapter is attached to a matrix of the tensor. 1: yes; 0: none; ERR_MODEL: yes, but
 * its row order cannot be written. */
int merge_tensor_find(const struct model *m, const struct tensor_view *t, struct merge_tensor *out,
                      struct error *e);
/* The same for row `row` of the tensor, as long as its last dimension. */
void merge_tensor_row(const struct merge_tensor *t, int64_t row, const float *strengths, float *x);

/* Opens the adapters to be merged into the model read from `in`, and their strengths. ERR_MODEL if
 * that is impossible: an adapter of a head tied to the embeddings. The caller closes what was
 * opened, also on failure. */
int merge_open(struct adapters **out, float strengths[LORA_ADAPTERS], struct model *m,
               const struct adapter_request *asked, int n, const char *in, struct error *e);

#endif
