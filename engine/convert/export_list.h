/* Inside engine/convert only: lists the tensors of an exported file before anything is written.
 * Owner of everything: model_export's struct export. Thread: the one that exports. */
#ifndef ENGINE_CONVERT_EXPORT_LIST_H
#define ENGINE_CONVERT_EXPORT_LIST_H

#include "engine/convert/export_state.h"
#include "engine/model/block.h"

#define EXPORT_TABLES                                                          \
    3 /* embeddings of the model and of the MTP block, inputs of single layers \
       */

/* Of a GGUF file: every tensor, with its name and shape. */
int export_list_tensors(struct export *x, struct error *e);
/* Of a Hugging Face folder: the tensors that llama.cpp's converter would write. `embeddings`, the
 * tables by token, are filled and outlive the list. ERR_MEMORY */
int export_list_parts(struct export *x, struct matrix embeddings[EXPORT_TABLES], struct error *e);
void export_list_release(struct export *x);
/* The tensor role of a part of a block. */
enum tensor_role export_role_of(const struct model *m, struct block_id id, enum matrix_part part);

#endif
