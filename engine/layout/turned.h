/* Words turned: the same bits in another order, as many of them, so that a kernel finds four
 * columns in the four bytes of a word. Per format, of a row's superblock:
 *
 * Q1_0, whose bit i is column i: bit k of byte b belongs to column 4k + b.
 * Q2_0, whose bits 2i, 2i + 1 are column i: bits 2k, 2k + 1 of byte b belong to column 4k + b.
 * Q3_K, which keeps a code's lowest two bits and its third 32 bytes apart, so that kernels would
 * take two multiplications where one does; all words, three of them for each k = 0 .. 7, byte b of
 * which belongs to element 4k + b of the blocks:
 *
 *     3k        bits 0 .. 2 block 0, 3 .. 5 block 1, 6 .. 7 the lower ones of block 6
 *     3k + 1    the same of blocks 2, 3 and 7
 *     3k + 2    bits 0 .. 2 block 4, 3 .. 5 block 5, 6 the third one of block 6, 7 of block 7
 *     24 .. 26  factors, those of a block's two halves in the two halves of a word, at the same
 *               places: word 24 + i has block 2i's six bits from 0 on, block 2i + 1's from 6 on;
 *               from 12 on the lower four bits of block 6 (word 24) and 7 (word 25), the upper two
 *               of block 6, then of block 7 (word 26)
 *
 * Pure functions: any thread. */
#ifndef ENGINE_LAYOUT_TURNED_H
#define ENGINE_LAYOUT_TURNED_H

#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define TURNED_WORDS 27 /* the most of a format */

/* Whether the words of that format are packed turned. */
bool turned_type(enum dtype type);
/* All words of a superblock of such a type. Input and output must not overlap. */
void turned_from_file(enum dtype type, const uint8_t *file, uint32_t turned[TURNED_WORDS]);
void turned_to_file(enum dtype type, const uint32_t turned[TURNED_WORDS], uint8_t *file);

#endif
