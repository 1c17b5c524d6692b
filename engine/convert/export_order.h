/* Inside engine/convert only: row and column permutations from the model's matrices to the written
 * ones, as in llama.cpp's converter. Thread: the one that exports. */
#ifndef ENGINE_CONVERT_EXPORT_ORDER_H
#define ENGINE_CONVERT_EXPORT_ORDER_H

#include "engine/convert/export_state.h"
#include "engine/model/block.h"

/* Whether files of a family interleave value heads over the key heads, where the model stores those
 * of one key head together (llama.cpp, conversion/qwen.py, _reorder_v_heads); and which of the
 * model's heads the file's head is. */
bool export_heads_dealt(const struct family *family, const struct mixer_shape *s);
int export_dealt_head(const struct mixer_shape *s, int head);

/* Orders live as long as the list of tensors. */

/* Of a part of a block. ERR_MEMORY: -1 */
int export_order_of(struct export *x, struct block_id id, enum matrix_part part,
                    struct export_order *out);
/* A delta net's projection grouped by key head (q, k, its values, their gates): the rows of all q,
 * all k, all v; or of the gates alone. Returns their number; -1: ERR_MEMORY. */
int export_order_joint(struct export *x, const struct mixer_shape *s, bool gates,
                       struct export_order *out);
/* A vector with as many values as a part has rows, in its order; v itself if nothing moves. NULL:
 * ERR_MEMORY. */
const float *export_order_vector(struct export *x, const struct export_order *o, const float *v,
                                 int n);

#endif
