/* Quantised blocks as files hold them: reading them back to F32, bit by bit as the gguf package
 * does. Pure functions, any thread. One place knows where a file has the bits of each format, and
 * the tests hold packing and kernels against it. */
#ifndef ENGINE_FILE_BLOCKS_H
#define ENGINE_FILE_BLOCKS_H

#include "engine/file/dtype.h"

#include <stdbool.h>

/* A row of n elements (a multiple of the type's block) of a quantised format; any alignment. */
bool blocks_readable(enum dtype type);
void blocks_to_f32(enum dtype type, const void *row, int64_t n, float *out);

/* What 32 elements are made of: element i, in half h, is value[i] * (d[h] * factor[h]) + m *
 * least[h]; both products are exact. Factors are those of halves alone, else 1; without a minimum m
 * is 0. */
struct block_fields {
    int8_t value[32];
    float d[2], m;
    int factor[2], least[2];
};
/* The index-th 32 elements of a row. */
void blocks_fields(enum dtype type, const void *row, int64_t index, struct block_fields *out);
/* What a code of that type stands for, before scales. */
int blocks_value(enum dtype type, uint8_t code);

/* Whether no value is a NaN or an infinity: looks at float elements, and of quantised blocks at
 * scales and minima alone, which decide it. bytes: whole blocks, of any type. */
bool blocks_finite(enum dtype type, const void *blocks, size_t bytes);

extern const int8_t blocks_values[][16]; /* rows: the lookup column of formats.def */

#endif
