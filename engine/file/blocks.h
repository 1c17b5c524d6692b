/* Quantised blocks as stored in files: converting them to F32, bit by bit as the gguf package does.
 * Pure functions, any thread. Only this code knows the files' bit layouts; the tests compare
 * packing and kernels with it. */
#ifndef ENGINE_FILE_BLOCKS_H
#define ENGINE_FILE_BLOCKS_H

#include "engine/file/block_fields.h"
#include "engine/file/dtype.h"

#include <stdbool.h>

/* A row of n elements (a multiple of the type's block) of a quantised format; any alignment. */
bool blocks_readable(enum dtype type);
void blocks_to_f32(enum dtype type, const void *row, int64_t n, float *out);

/* A row of n elements of F8, whose rows are not whole blocks. */
void f8_to_f32(const void *row, int64_t n, float *out);

/* The index-th 32 elements of a row. */
void blocks_fields(enum dtype type, const void *row, int64_t index, struct block_fields *out);
/* Value of a code of that type, before scales. */
int blocks_value(enum dtype type, uint8_t code);

/* Whether no value is NaN or infinite: checks float elements, and of quantised blocks only scales
 * and minima, which decide it. bytes: whole blocks, of any type but F8. */
bool blocks_finite(enum dtype type, const void *blocks, size_t bytes);
/* The same of a row of n elements of F8. */
bool f8_finite(const void *row, int64_t n);

#endif
