/* Repacked matrices of ik_llama.cpp's GGUF files (types _R4, _R8, _R16): so many rows lie
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
/* Repacked types of llama.cpp's formats by their ids in GGUF files, and Q6_0. */
enum row_group_plain {
    PLAIN_Q6_0 = 133, /* rows side by side as any other type's; shown as Q8_0, as all below it */
    PLAIN_Q6_0_R4 = 233,
    PLAIN_Q8_K_R16 = 397,
    PLAIN_Q8_K_R8 = 399,
    PLAIN_Q8_0_R8 = 208,
    PLAIN_Q8_KV_R8 = 398,
    PLAIN_Q4_0_R8 = 202,
    PLAIN_Q5_0_R4 = 206,
    PLAIN_Q2_K_R4 = 210,
    PLAIN_Q3_K_R4 = 211,
    PLAIN_Q4_K_R4 = 212,
    PLAIN_Q5_K_R4 = 213,
    PLAIN_Q6_K_R4 = 214,
    PLAIN_IQ2_XXS_R4 = 216,
    PLAIN_IQ2_XS_R4 = 217,
    PLAIN_IQ3_XXS_R4 = 218,
    PLAIN_IQ1_S_R4 = 219,
    PLAIN_IQ4_NL_R4 = 220,
    PLAIN_IQ3_S_R4 = 221,
    PLAIN_IQ2_S_R4 = 222,
    PLAIN_IQ4_XS_R8 = 223,
    PLAIN_IQ1_M_R4 = 229, /* shown as IQ1_M_R */
    PLAIN_BF16_R16 = 230,
    PLAIN_MXFP4_R8 = 353,
};

/* Superblock `part` (0 where both have as many columns) of row r out of one superblock of the
 * group's, at `from`; `group` has the rows' own scales, where there are any. Requires a type that
 * row_scaled.h knows, other than BF16_R16. */
void row_group_plain(enum row_group_plain type, const uint8_t *group, const uint8_t *from, int r,
                     int64_t part, uint8_t *out);

#endif
