/* Writes a Hugging Face folder with adapters merged into its weights: model.safetensors in the
 * source's types, or in another one, and copies of the source's other files. One thread. */
#ifndef ENGINE_CONVERT_MERGE_FOLDER_H
#define ENGINE_CONVERT_MERGE_FOLDER_H

#include "engine/adapter/adapter.h"
#include "engine/base/error.h"

#include <stdint.h>

struct merge_report {
    uint64_t bytes;
    int tensors, merged; /* written; of these with a merged adapter */
};

/* type: enum dtype of all floats, F32, F16 or BF16; -1: unchanged, so that BF16 rounds the sum.
 * out: a folder, created if missing; a model.safetensors in it is replaced completely or not at
 * all. ERR_USAGE: in is no folder of floats, or out is in; ERR_MODEL, ERR_IO, ERR_MEMORY,
 * ERR_CANCELLED. */
int merge_folder(const char *in, const char *out, int type, const struct adapter_request *adapters,
                 int n, int (*progress)(void *ctx, uint64_t done, uint64_t total),
                 void *progress_ctx, struct merge_report *report, struct error *e);

#endif
