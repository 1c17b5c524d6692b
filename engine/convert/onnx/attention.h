/* Attention over a cache in an exported graph: projections, rotation, masks, the softmax, and the
 * model's inputs and outputs past_key_values.N.* and present.N.*. Keys are cached rotated. */
#ifndef ENGINE_CONVERT_ONNX_ATTENTION_H
#define ENGINE_CONVERT_ONNX_ATTENTION_H

#include "engine/convert/onnx/parts.h"

/* Values common to all layers, from the inputs attention_mask and position_ids: sizes, columns,
 * rotary tables for all positions of the model. The first layer's cache is declared. */
void network_begin_attention(struct network *n);
/* The mixer's output for x (tokens, hidden), normed. */
const char *network_attention(struct network *n, int layer, const char *x);

#endif
