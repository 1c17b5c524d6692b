/* The weights of an exported ONNX model: the tensors, their types and locations: in a copy of the
 * checkpoint's safetensors file (a reflink where the file system supports it; onnx refuses links),
 * in a data file at multiples of 4096 bytes, or, small ones, in the graph. Rounded weights become
 * F32, adapters are added in F32. Owner: the export. One thread. */
#ifndef ENGINE_CONVERT_ONNX_STORE_H
#define ENGINE_CONVERT_ONNX_STORE_H

#include "engine/base/error.h"
#include "engine/convert/onnx/graph.h"
#include "engine/model/model.h"

#include <stdint.h>

#define ONNX_DATA "model.onnx_data"
#define ONNX_ALIGN 4096

struct onnx_store;

/* type: enum dtype of all matrices, F32, F16 or BF16; -1: unchanged, F32 for those that are rounded
 * or have an adapter. strengths: by adapter. The model and they outlive the store. NULL: no
 * memory. */
struct onnx_store *onnx_store_new(struct onnx_graph *g, const struct model *m, int type,
                                  const float *strengths);
void onnx_store_free(struct onnx_store *s); /* accepts NULL */

/* Each returns the name of the value, which is F32 unless `raw`: then *raw is its type, and the
 * caller must cast it. n dimensions, the last of them the columns. Names are copied. */
const char *onnx_store_matrix(struct onnx_store *s, const char *name, const struct matrix *m,
                              enum onnx_type *raw);
/* F32. NULL: out of memory. */
const char *onnx_store_values(struct onnx_store *s, const char *name, int n, const int64_t *dims,
                              const float *values);
/* Allocates such values that live as long as the store. NULL: no memory. */
float *onnx_store_keep(struct onnx_store *s, size_t n);
/* n matrices of rows * cols elements each as (n, rows * cols): matrix i is at[i] of them. In the
 * checkpoint's file if they are adjacent there, in any order. */
const char *onnx_store_slots(struct onnx_store *s, const char *name,
                             const struct matrix *const *matrices, int n, int64_t *at);
/* n of them as (n, rows, cols); turns, if not NULL: as many more, whose rows alternate with theirs,
 * (n, 2 rows, cols). */
const char *onnx_store_stack(struct onnx_store *s, const char *name,
                             const struct matrix *const *matrices,
                             const struct matrix *const *turns, int n);

/* Bytes: of the data file; of copies of the checkpoint's files, without reflinks; of tensors stored
 * in copies. */
struct onnx_written {
    uint64_t own, copied, shared;
    int tensors;
};

/* Assigns every tensor its location, and returns how much will be written. Reflinks are made at
 * once. */
int onnx_store_place(struct onnx_store *s, const char *folder, struct onnx_written *w,
                     struct error *e);
/* Writes the copies and folder/ONNX_DATA, if needed. ERR_IO, ERR_VALUE (a value outside F16's
 * range), ERR_CANCELLED. */
int onnx_store_write(struct onnx_store *s, const char *folder,
                     int (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                     struct error *e);

#endif
