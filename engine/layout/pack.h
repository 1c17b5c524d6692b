/* Rows of weights: conversion between element types and the interleaved layout that the kernels
 * read (engine/layout/matrix.h). Pure functions without state or allocation: any thread; a matrix
 * may be packed by many threads, each a range of row groups.
 *
 * A "group" is `width` rows (8 or 16); with width 0 the result is row-major and a group is one row.
 * Quantised types need cols to be a multiple of their block (pack_bytes returns 0 otherwise). */
#ifndef ENGINE_LAYOUT_PACK_H
#define ENGINE_LAYOUT_PACK_H

#include "engine/file/dtype.h"

#include <stdbool.h>

/* Whether there are kernels for this type: quantised ones interleaved (format.h), F32, F16, BF16
 * row-major. */
bool pack_supported(enum dtype type);
/* The width of a matrix of this type in memory: `width` for quantised types, 0 for float types
 * (used in place). */
int pack_width(enum dtype type, int width);
/* Row groups of a matrix, the last one padded: ceil(rows / width), or rows when width is 0. */
int pack_groups(int rows, int width);
/* Bytes of the packed matrix, padding included; 0 when the type cannot be packed so. */
size_t pack_bytes(enum dtype type, int rows, int cols, int width);
/* Packs groups first .. first+count-1 into dst (the start of the whole packed matrix). src: the
 * whole matrix row-major, of type `from`, any alignment. from == to repacks; else from is a float
 * type and rows are converted or quantised (as ggml's reference quantisation, bit by bit). Rows
 * beyond the last become zeros. */
void pack_rows(void *dst, enum dtype to, int width, const void *src, enum dtype from, int rows,
               int cols, int first, int count);
/* Packs group `group` of an interleaved matrix of the same type into dst (that group's position),
 * for immediate use. */
void pack_one(void *dst, enum dtype type, int width, const void *src, int rows, int cols,
              int group);

/* One row of n elements to and from F32, in the file's own layout (GGUF blocks for quantised
 * types); any alignment. */
bool row_readable(enum dtype type); /* supported by row_to_f32 */
void row_to_f32(enum dtype type, const void *row, int64_t n, float *out);
bool row_writable(enum dtype type); /* supported by row_from_f32 */
void row_from_f32(enum dtype type, const float *x, int64_t n, void *row);

#endif
