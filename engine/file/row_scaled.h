/* Matrices of ik_llama.cpp's GGUF files whose rows begin with one scale for all their superblocks,
 * or lie in groups of four to sixteen (row_groups.h): shown as packed tensors (packed.h) of a
 * format whose superblocks have the scale each, row after row, which is lossless. Q6_0, Q8_K_R8 and
 * Q8_K_R16 are shown as Q8_0, whose codes hold theirs. IQ1_M_R4 becomes IQ1_M_R, which only such
 * rows have: its factors are all numbers up to 15, where those of IQ1_M are odd.
 *
 *     IQ2_KS, IQ3_KS   an F16 number, superblocks of 70 and 102 bytes
 *     IQ4_KS, IQ5_KS   F32, 136 and 168 bytes
 *     IQ4_KSS          F32, 128 bytes, becomes IQ4_KS: of eight fields of 16 bits a block's factor
 *                      has the lowest bits, the others, XOR themselves one bit down, are its codes
 *     IQ2_KL           an F16 number, superblocks of 86 bytes
 *     IQ1_KT .. IQ4_KT F32, 56, 68, 100 and 128 bytes
 *     Q8_KV            F32 and a sum of four bytes that is not needed, 128 columns
 *
 * Formulas: iqk_quantize.cpp there, dequantize_row_iq4_kss and the others'. Thread: see weights.h.
 */
#ifndef ENGINE_FILE_ROW_SCALED_H
#define ENGINE_FILE_ROW_SCALED_H

#include "engine/base/error.h"
#include "engine/file/packed_parts.h"

#include <stdint.h>

/* The type as which tensors of that GGUF type are shown; -1: it is none of these. */
int row_scaled_type(uint32_t gguf);
/* Bytes of a row of cols columns (whole superblocks) in the file. */
size_t row_scaled_bytes(uint32_t gguf, int64_t cols);

struct weight_file;

/* What `packed` of a tensor of that type is until row_scaled_show. NULL: it is none. */
const struct packed *row_scaled_mark(uint32_t gguf);
/* Sets `packed` of the file's marked tensors, once all are in its table. ERR_MODEL names a tensor
 * in groups whose rows are no multiple of that; ERR_MEMORY. */
int row_scaled_show(struct weight_file *f, struct error *e);

/* A row of the tensor in the type t->type; or as F32. Requires t->packed of PACKING_ROWS. */
void row_scaled_row(const struct tensor_view *t, int64_t row, uint8_t *out);
void row_scaled_values(const struct tensor_view *t, int64_t row, float *out);

#endif
