/* Files written with model.onnx: genai_config.json (onnxruntime-genai) and, if the source has none,
 * config.json (optimum). One thread. */
#ifndef ENGINE_CONVERT_ONNX_CONFIG_H
#define ENGINE_CONVERT_ONNX_CONFIG_H

#include "engine/base/error.h"
#include "engine/model/model.h"

#include <stdbool.h>

/* Whether genai_config.json can describe the cache: one width, one count for all layers. */
bool onnx_config_possible(const struct hparams *hp);
int onnx_config_genai(const struct model *m, const char *path, struct error *e);
/* For a source without one: sizes only. */
int onnx_config_plain(const struct model *m, const char *path, struct error *e);

#endif
