/* Quantised blocks as files hold them: reading them back to F32, bit by bit as the gguf package
 * does. Pure functions, any thread. One place knows the bit fields of each format; packing for
 * kernels goes through blocks_fields, so that it cannot read them otherwise. */
#ifndef ENGINE_FILE_BLOCKS_H
#define ENGINE_FILE_BLOCKS_H

#include "engine/file/dtype.h"

#include <stdbool.h>

/* A row of n elements (a multiple of the type's block) of Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K or
 * IQ4_NL; any alignment. */
bool blocks_readable(enum dtype type);
void blocks_to_f32(enum dtype type, const void *row, int64_t n, float *out);

/* What 32 elements are made of: element i = scale * (code[i] - offset of the type) [+ or - min],
 * before any rounding. Q6_K has a scale for each half. IQ4_NL's codes are indexes of iq4_values. */
struct block_fields {
    uint8_t code[32];
    /* F16 bits: scale and minimum of the block, or of the block of 256 it lies in */
    uint16_t d, m;
    uint8_t scale, min; /* Q4_K, Q5_K: 6-bit factors of d and m */
    int8_t half[2];     /* Q6_K */
};
/* The index-th 32 elements of a row. */
void blocks_fields(enum dtype type, const void *row, int64_t index, struct block_fields *out);

/* Whether no value is a NaN or an infinity: looks at float elements, and of quantised blocks at
 * scales and minima alone, which decide it. bytes: whole blocks, of any type. */
bool blocks_finite(enum dtype type, const void *blocks, size_t bytes);

extern const int8_t blocks_iq4_values[16];

#endif
