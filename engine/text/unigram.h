/* Unigram language model (Kudo 2018, SentencePiece's "unigram"): of all splits of a text into
 * pieces the one with the largest sum of scores, which are log probabilities. One forward pass, a
 * node per byte, as in both reference libraries; sums are doubles, and of equal sums the first
 * found is kept. Scratch belongs to the caller; one thread. */
#ifndef ENGINE_TEXT_UNIGRAM_H
#define ENGINE_TEXT_UNIGRAM_H

#include "engine/text/tokenizer_data.h"

#define UNIGRAM_UNKNOWN (-1)

struct unigram_node {
    double score;
    uint32_t from; /* start of the piece that ends here; UINT32_MAX: none ends here */
    int32_t id;    /* UNIGRAM_UNKNOWN: a character that is not a piece */
};

struct unigram {
    struct unigram_node *nodes; /* mem_*, one more than bytes */
    size_t size;
};

/* Fills nodes[0 .. len]: afterwards nodes[p].from of the pieces of the best split point forward, to
 * the end of the piece that begins at p, whose id is nodes[p].id. step: called once per character.
 * ERR_MEMORY. */
int unigram_cut(struct unigram *u, const struct tokenizer *t, const char *text, size_t len,
                int (*step)(void *ctx), void *ctx, struct error *e);

#endif
