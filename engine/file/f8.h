/* The order of codes in a row of F8 (dtype.h). The bytes of each 64 columns are transposed: columns
 * i, 16 + i, 32 + i and 48 + i are one word, so that adjacent words are lanes of rule 11 of
 * numerics.h, and kernels need not permute bytes. The rest of a row after whole groups of 64 is in
 * order. Pure; any thread. */
#ifndef ENGINE_FILE_F8_H
#define ENGINE_FILE_F8_H

#include "engine/file/dtype.h"

#define F8_TURNED 64

/* Byte offset of the code of column c in a row of `cols` columns. */
static inline size_t f8_place(int64_t c, int64_t cols)
{
    int64_t i = c % F8_TURNED, first = c - i;

    if (first + F8_TURNED <= cols)
        i = i % 16 * 4 + i / 16;
    return (size_t)(c / F8_BLOCK * F8_BLOCK_BYTES + 4 + first % F8_BLOCK + i);
}

#endif
