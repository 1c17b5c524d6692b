/* What lies beside an exported model.onnx: genai_config.json (onnxruntime-genai) and, where the
 * source has none, config.json (optimum). One thread. */
#ifndef ENGINE_CONVERT_ONNX_CONFIG_H
#define ENGINE_CONVERT_ONNX_CONFIG_H

#include "engine/base/error.h"
#include "engine/model/model.h"

#include <stdbool.h>

/* Whether all layers have the cache that genai_config.json can say: one width, one count. */
bool onnx_config_possible(const struct hparams *hp);
int onnx_config_genai(const struct model *m, const char *path, struct error *e);
/* Of a model that came without one: sizes alone. */
int onnx_config_plain(const struct model *m, const char *path, struct error *e);

#endif
