/* Repacked matrices of ik_llama.cpp's GGUF files (types _R4 and _R8): four or eight rows lie
 * interleaved, four columns of each side by side. Read back as superblocks of the plain formats,
 * the same bits in their places (iqk_quantize.cpp there: dequantize_row_iq4_k_r4 and the others).
 * IQ4_KS and IQ5_KS have the four rows' scales first. Pure functions: any thread. */
#ifndef ENGINE_FILE_ROW_GROUPS_H
#define ENGINE_FILE_ROW_GROUPS_H

#include "engine/file/dtype.h"

#include <stdbool.h>

#define ROW_GROUP 4

/* Whether the format is known in groups. */
bool row_group_type(enum dtype type);

/* Superblock `index` of row r of a group (4 times the bytes of a row of the file's plain type), as
 * a superblock of the type. */
void row_group_block(enum dtype type, const uint8_t *group, int r, int64_t index, uint8_t *out);
/* The same for llama.cpp's formats, in groups of `rows` rows: Q8_0, Q4_0, MXFP4 and IQ4_XS of
 * eight, IQ4_NL, Q4_K, Q5_K, Q6_K and IQ1_S of four (whose scales are the rows' own). */
void row_group_plain(enum dtype type, const uint8_t *group, int rows, int r, int64_t index,
                     uint8_t *out);

#endif
