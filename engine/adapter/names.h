/* Names of a matrix's adapter in files, for writing adapters: from the walker's (block, part) to
 * the names of the family's table. Pure functions of an immutable model: any thread. */
#ifndef ENGINE_ADAPTER_NAMES_H
#define ENGINE_ADAPTER_NAMES_H

#include "engine/model/block.h"

#include <stdbool.h>
#include <stddef.h>

#define NAME_PARTS 3

/* A module in an adapter file: one or several parts of a block, their rows stacked, with one A for
 * all of them. */
struct adapter_name {
    char text[200]; /* without ".weight": "model.layers.0.self_attn.q_proj", "blk.0.attn_q" */
    enum matrix_part parts[NAME_PARTS];
    int n_parts;
    bool stacked; /* one tensor for all routed experts of the layer (GGUF) */
};

/* Its name in PEFT files of a Hugging Face folder (experts one by one), or in a GGUF adapter (all
 * routed experts in one). Rows are joined as in the model's file. false: files of that format have
 * no name for it. */
bool adapter_name_of(const struct model *m, enum weight_format format, struct block_id id,
                     enum matrix_part part, struct adapter_name *out);
/* The row in a file of that format for row `row` of a part of the model: rows within the heads of
 * queries and keys may be reordered there (pairs, or halves). */
int adapter_row_of(const struct model *m, enum weight_format format, struct block_id id,
                   enum matrix_part part, int row);

#endif
