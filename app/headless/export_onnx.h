/* `moetop -m MODEL --export-onnx FOLDER`: the model for onnxruntime and what builds on it. Main
 * thread. */
#ifndef APP_HEADLESS_EXPORT_ONNX_H
#define APP_HEADLESS_EXPORT_ONNX_H

#include "app/options/options.h"

bool export_onnx_wanted(const struct options *o);
int export_onnx_run(struct options *o, struct error *e);

#endif
