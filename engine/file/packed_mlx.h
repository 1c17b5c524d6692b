/* MLX's packed matrices (packed.h): words of eight or four codes, the first one low, (out, words)
 * or (experts, out, words); scales and biases for each 32, 64 or 128 columns: scale * code + bias.
 *
 *     4 bits   Q4_1, the same values, where scales and biases are F16 numbers
 *     else     the type of the scales, in which MLX dequantises: product and sum are rounded to it
 *              as mx.dequantize does
 *     mxfp4    MXFP4
 *     nvfp4    NVFP4; F32 where columns are no multiple of 64
 *
 * Formulas: mlx, backend/cpu/quantized.cpp (extract_bits, _dequantize of ops.cpp). Thread: see
 * weights.h. */
#ifndef ENGINE_FILE_PACKED_MLX_H
#define ENGINE_FILE_PACKED_MLX_H

#include "engine/file/packed_show.h"

/* Fills *p; p->kind becomes MXFP4_ROWS or NVFP4 where the module's mode is that. */
int packed_mlx_show(const struct showing *s, struct packed *p);

void packed_mlx_row(const struct tensor_view *t, int64_t row, uint8_t *out);
void packed_mlx_values(const struct tensor_view *t, int64_t row, float *out);

#endif
