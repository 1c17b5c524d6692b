/* Blocks of the formats that are packed unchanged (words in formats.def). For blocks.c and the
 * reference kernel. Pure functions, any thread. */
#ifndef ENGINE_FILE_BLOCKS_WORDS_H
#define ENGINE_FILE_BLOCKS_WORDS_H

#include "engine/file/block_fields.h"
#include "engine/file/dtype.h"

/* Block j of a superblock's words. out->d and out->m are the superblock's on entry, the rest is
 * 1. Before the words are the fields of 16 bits that a superblock has behind its scale. */
void blocks_words(enum dtype type, const uint8_t *words, int j, struct block_fields *out);
/* The half assembled from the highest digits of four 16-bit fields (IQ1_M). */
uint16_t blocks_spread(const uint8_t *scales);

#endif
