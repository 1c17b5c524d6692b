/* The graph of a whole model as onnxruntime, onnxruntime-genai and optimum run it. Inputs (int64):
 * input_ids (batch_size, sequence_length), attention_mask (batch_size, total_sequence_length),
 * position_ids as input_ids; and past_key_values.N.key|value (batch_size, kv heads,
 * past_sequence_length, dim), whose length may be 0. Outputs: logits, present.N.key|value. */
#ifndef ENGINE_CONVERT_ONNX_NETWORK_H
#define ENGINE_CONVERT_ONNX_NETWORK_H

#include "engine/convert/onnx/graph.h"
#include "engine/convert/onnx/store.h"
#include "engine/model/model.h"

#include <stdbool.h>

/* ERR_MODEL names the layer and what of it is not supported here. microsoft: as in
 * network_build. */
int network_possible(const struct hparams *hp, bool microsoft, struct error *e);
/* m must have passed network_possible. microsoft: experts as com.microsoft.MoE, which only
 * onnxruntime has. tables: memory for the embeddings' and positions' views that lives as long as
 * the store. ERR_MEMORY. */
int network_build(struct onnx_graph *g, struct onnx_store *s, const struct model *m, bool microsoft,
                  struct matrix tables[2], struct error *e);

#endif
