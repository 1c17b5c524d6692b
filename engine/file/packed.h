/* Packed matrices: of Hugging Face folders, whose codes, scales and zero points are separate
 * tensors (packing.h): each is shown as one tensor with the name and an element type that holds the
 * same values as its unpacked equivalent, and its rows are assembled on request.
 *
 *     MXFP4             MXFP4 (gpt-oss's, and compressed-tensors')
 *     GPTQ, AWQ, words  Q4_0 where every zero point is 8, else Q5_0, whose fifth bit can hold every
 *                       code less its zero point (Q4_1's minimum would have to be a product of 15
 *                       bits, of which F16 has 11). Of 8 bits: Q8_0 where every zero point is 128.
 *                       F32 where that would not be exact: a scale that is no F16 number, groups
 *                       that are no multiples of 32 columns, other zero points of 8 bits. Columns
 *                       with scattered groups (act-order) are sorted by group
 *     FP8               F8
 *     NVFP4, bitsandbytes' tables: packed_floats.h; MLX: packed_mlx.h
 *
 * And of GGUF files whose rows have one scale: row_scaled.h.
 *
 * Thread: see weights.h. Owner: the weight file. */
#ifndef ENGINE_FILE_PACKED_H
#define ENGINE_FILE_PACKED_H

#include "engine/base/error.h"
#include "engine/file/packed_parts.h"

struct weight_file;

/* Replaces the parts of packed matrices in the file's table, which is sorted by name, by their
 * unpacked equivalents, and leaves it unsorted. ERR_MODEL names tensor and file: a part that is
 * missing or of a wrong shape or type, a group out of range. */
int packed_show(struct weight_file *f, const struct packing *p, struct error *e);
void packed_release(struct weight_file *f);

/* Row `row` of all matrices of the tensor, as F32 and in the file's order. Requires t->packed. */
void packed_values(const struct tensor_view *t, int64_t row, float *out);
/* n (at most PACKED_ROWS) of them, `step` apart, stored consecutively: in the tensor's type, in the
 * order of `order`. */
#define PACKED_ROWS 16
void packed_rows(const struct tensor_view *t, int64_t first, int step, int n, void *out);
/* The range of the codes with rows first .. first+n-1. */
void packed_span(const struct tensor_view *t, int64_t first, int64_t n, size_t *offset,
                 size_t *bytes);

#endif
