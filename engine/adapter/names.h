/* What files call the adapter of a matrix: the way back from the walker's (block, part) to the
 * names of the family's table, for who writes adapters. Pure functions of an immutable model: any
 * thread. */
#ifndef ENGINE_ADAPTER_NAMES_H
#define ENGINE_ADAPTER_NAMES_H

#include "engine/model/block.h"

#include <stdbool.h>
#include <stddef.h>

#define NAME_PARTS 3

/* A module as adapters know it: one or several parts of a block, their rows one under the other,
 * with one A for all of them. */
struct adapter_name {
    char text[200]; /* without ".weight": "model.layers.0.self_attn.q_proj", "blk.0.attn_q" */
    enum matrix_part parts[NAME_PARTS];
    int n_parts;
    bool stacked; /* one tensor for all routed experts of the layer (GGUF) */
};

/* As PEFT calls it in a Hugging Face folder (experts one by one), or as a GGUF adapter does (all
 * routed experts in one). How rows are joined follows the model's own file. false: files of that
 * format have no name for it. */
bool adapter_name_of(const struct model *m, enum weight_format format, struct block_id id,
                     enum matrix_part part, struct adapter_name *out);
/* Where row `row` of a part of the model lies in a file of that format: heads of queries and keys
 * may be turned there (rows of a head: pairs, or halves). */
int adapter_row_of(const struct model *m, enum weight_format format, struct block_id id,
                   enum matrix_part part, int row);

#endif
