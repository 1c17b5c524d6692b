/* Exports a model as an ONNX folder: model.onnx, its weights, the source's config.json and
 * tokenizer, and genai_config.json. Adapters are merged into the weights. One thread. */
#ifndef ENGINE_CONVERT_ONNX_EXPORT_ONNX_H
#define ENGINE_CONVERT_ONNX_EXPORT_ONNX_H

#include "engine/adapter/adapter.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct onnx_request {
    int type; /* enum dtype of matrices, F32, F16 or BF16; -1: unchanged, rounded ones as F32 */
    bool microsoft; /* experts as com.microsoft.MoE */
    const struct adapter_request *adapters;
    int n_adapters;
    /* non-zero cancels; may be NULL */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

struct onnx_report {
    /* bytes: model.onnx, the data file, tensors stored in a copy of the checkpoint's file */
    uint64_t graph, own, shared;
    int tensors;
    bool genai; /* genai_config.json was written */
};

/* out: a folder that does not exist, or is empty; it is written under a temporary name beside it
 * and renamed when complete, else nothing is left. ERR_USAGE: it exists; ERR_MODEL: damaged, or an
 * unsupported kind of layer, named; ERR_IO, ERR_VALUE, ERR_MEMORY, ERR_CANCELLED. */
int export_onnx(const char *in, const char *out, const struct onnx_request *r,
                struct onnx_report *report, struct error *e);

#endif
