/* clang-format off */
/* The packed layout of the quantised formats (engine/file/formats.def). A group of w rows takes as
 * many bytes as in the file. Its columns are cut into superblocks (one block of the file's format),
 * one after the other; a superblock is a head and then its blocks of 32 columns. Row r's part of
 * each piece, in this order; which pieces a format has, its traits tell:
 *
 *     head     d        w x F16        scale; or w x one byte of exponents
 *              m        w x F16        minimum; with factors: the scale of the minima
 *              factors, signed  w x 16 bits, then w words, as the file has them
 *              factors  3 x w words    the 12 bytes of 6-bit factors as in the file, word k of row
 *                                      r at k * w + r
 *              halves   4 x w words    16 signed bytes, a factor each half block, four a word
 *     block    high 1   w words        byte j, bit k belongs to element 4k + j
 *              high 2   2 x w words    word h, byte j, bits 2f, 2f+1 belong to element 16h + 4f + j
 *              payload  4 x w words    bits 4: word k, low nibbles elements 4k .. 4k+3, high
 *                                      nibbles elements 16+4k .. 16+4k+3
 *                       8 x w words    bits 8: word k, elements 4k .. 4k+3, each XOR FORMAT_FLIP
 *
 * Where formats.def counts words, a superblock is d, m and that many words of the file, word k of
 * row r at k * w + r. Some formats' words are turned first (turned.h).
 *
 * Pure functions: any thread. */
/* clang-format on */
#ifndef ENGINE_LAYOUT_FORMAT_H
#define ENGINE_LAYOUT_FORMAT_H

#include "engine/file/format_traits.h"

/* Which of a code's bits are inverted where it has eight: x86's products of bytes take an unsigned
 * factor, Arm's two signed ones, and a kernel limited by instructions has none to spare for what
 * packing can do. */
#if defined(__aarch64__)
#define FORMAT_FLIP 0
#else
#define FORMAT_FLIP 0x80
#endif

/* One superblock of each of four rows, as the file has it, to rows r .. r+3 of the packed one. */
void format_pack(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const from[4]);

#endif
