/* Packed matrices (packed.h) whose codes number floats of 4 bits:
 *
 *     NVFP4    of compressed-tensors and ModelOpt, (out, in / 2): two codes of E2M1 a byte, the
 *              first one low; an E4M3 factor for 16 columns; an F32 factor for all, by which
 *              compressed-tensors divides. Shown as NVFP4_S; F32 where in is no multiple of 64.
 *              Of ModelOpt also MXFP4, as compressed-tensors', and FP8
 *     tables   of bitsandbytes, nf4 and fp4: two codes a byte, the first one high, numbers of a
 *              table of 16; a factor for `blocksize` weights, F32 or a number of a table of 256,
 *              times an F32 factor for nested_blocksize of these, plus nested_offset. The values
 *              are rounded to the dtype that quant_state names, and are shown in it
 *     blocks   NVFP4 of GGUF files with a factor beside, `.scale`: shown as NVFP4_S
 *
 * Formulas: compressed_tensors, quantization/lifecycle/forward.py (_dequantize); modelopt,
 * torch/quantization/qtensor/nvfp4_tensor.py (dequantize); bitsandbytes, functional.py
 * (QuantState, dequantize_4bit). Thread: see weights.h. */
#ifndef ENGINE_FILE_PACKED_FLOATS_H
#define ENGINE_FILE_PACKED_FLOATS_H

#include "engine/file/packed_show.h"

/* Fills *p but for kind and codes; ERR_MODEL names tensor and file. p->kind becomes MXFP4_ROWS or
 * FP8 where a matrix of ModelOpt is that; its parts are then still to be found. */
int packed_floats_show(const struct showing *s, struct packed *p);

/* A row in the type t->type; as F32: compressed-tensors' quotients there are rounded once, those of
 * NVFP4_S's factor twice. */
void packed_floats_row(const struct tensor_view *t, int64_t row, uint8_t *out);
void packed_floats_values(const struct tensor_view *t, int64_t row, float *out);

#endif
