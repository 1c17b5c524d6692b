/* The packed layout of the quantised formats besides Q8_0 and Q4_0 (those: engine/layout/matrix.h),
 * and what their kernels ask of it. A group of w rows takes as many bytes as in the file. Its
 * columns are cut into superblocks (one block of the file's format), one after the other; a
 * superblock is a head and then 1 or 8 blocks of 32 columns. Row r's part of each piece: d, m w x
 * F16        scale; minimum (Q4_K, Q5_K: the scale of the minima) factors    3 x w words    Q4_K,
 * Q5_K: the 12 bytes of 6-bit factors as in the file, word k of row r at k * w + r halves     4 x w
 * words    Q6_K: the 16 scales, four a word high       8 x w/2 bytes  fifth bits: of word k
 * (elements 4k .. 4k+3), bit 4r + byte of the w/2 bytes at k * w/2: a vector mask high2      2 x w
 * words    Q6_K, bits 4 and 5: word h, byte j, bits 2f, 2f+1 belong to element 16h + 4f + j payload
 * 4 x w words    as Q4_0 (engine/layout/matrix.h): word k, low nibbles elements 4k.., high nibbles
 * elements 16+4k..
 *
 *     type     head                       each block of 32     blocks
 *     Q4_1     d m                        payload              1
 *     Q5_0     d                          high payload         1
 *     Q5_1     d m                        high payload         1
 *     IQ4_NL   d                          payload              1
 *     Q4_K     d m factors                payload              8
 *     Q5_K     d m factors                high payload         8
 *     Q6_K     d halves                   high2 payload        8
 * Pure functions: any thread. */
#ifndef ENGINE_LAYOUT_FORMAT_H
#define ENGINE_LAYOUT_FORMAT_H

#include "engine/file/dtype.h"

#include <stdbool.h>

/* dtype, name in functions, blocks a superblock, bytes of head and of a block per row */
/* clang-format off */
#define FORMATS(X)                     \
    X(DTYPE_Q4_1,   q4_1,   1,  4, 16) \
    X(DTYPE_Q5_0,   q5_0,   1,  2, 20) \
    X(DTYPE_Q5_1,   q5_1,   1,  4, 20) \
    X(DTYPE_IQ4_NL, iq4_nl, 1,  2, 16) \
    X(DTYPE_Q4_K,   q4_k,   8, 16, 16) \
    X(DTYPE_Q5_K,   q5_k,   8, 16, 20) \
    X(DTYPE_Q6_K,   q6_k,   8, 18, 24)
/* clang-format on */

/* Constant for a constant type, so that the kernels' branches on it vanish. Right for Q4_0 and Q8_0
 * too: a head of one scale. */
static inline int format_blocks(enum dtype type)
{
    return type == DTYPE_Q4_K || type == DTYPE_Q5_K || type == DTYPE_Q6_K ? 8 : 1;
}

static inline int format_head(enum dtype type)
{
    return type == DTYPE_Q6_K                         ? 18
           : format_blocks(type) == 8                 ? 16
           : type == DTYPE_Q4_1 || type == DTYPE_Q5_1 ? 4
                                                      : 2;
}

static inline bool format_has_high(enum dtype type)
{
    return type == DTYPE_Q5_0 || type == DTYPE_Q5_1 || type == DTYPE_Q5_K;
}

static inline int format_block_bytes(enum dtype type)
{
    return type == DTYPE_Q8_0 ? 32 : type == DTYPE_Q6_K ? 24 : format_has_high(type) ? 20 : 16;
}

/* The code that stands for 0 where kernels read codes as unsigned bytes. */
static inline int format_zero(enum dtype type)
{
    return type == DTYPE_Q4_0                           ? 8
           : type == DTYPE_Q5_0                         ? 16
           : type == DTYPE_Q6_K                         ? 32
           : type == DTYPE_Q8_0 || type == DTYPE_IQ4_NL ? 128
                                                        : 0;
}

static inline bool format_has_min(enum dtype type)
{
    return type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
}

bool format_known(enum dtype type);
/* Rows group * width .. of a matrix of this type into dst (the group's place); rows beyond the last
 * become zeros. */
void format_pack_group(void *dst, enum dtype type, int width, const void *src, int rows, int cols,
                       int group);

#endif
