/* Q3_K's words turned: the file keeps a code's lowest two bits and its third 32 bytes apart, which
 * costs kernels two multiplications where one would do. The same bits in another order, as many of
 * them; all words of a row's superblock, three of them for each k = 0 .. 7, byte b of
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

#include <stdint.h>

#define TURNED_WORDS 27

/* Input and output must not overlap. */
void turned_from_file(const uint8_t *file, uint32_t turned[TURNED_WORDS]);
void turned_to_file(const uint32_t turned[TURNED_WORDS], uint8_t *file);

#endif
