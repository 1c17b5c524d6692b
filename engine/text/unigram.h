/* Unigram language model (Kudo 2018, SentencePiece's "unigram"): of all ways to cut a text into
 * pieces the one whose scores, logarithms of probabilities, add up to most. One pass forward, a
 * node a byte, as both reference libraries do it; sums are doubles, and of equal sums the first
 * found stays. Scratch belongs to the caller; one thread. */
#ifndef ENGINE_TEXT_UNIGRAM_H
#define ENGINE_TEXT_UNIGRAM_H

#include "engine/text/tokenizer_data.h"

#define UNIGRAM_UNKNOWN (-1)

struct unigram_node {
    double score;
    uint32_t from; /* where the piece that ends here begins; UINT32_MAX: nothing ends here */
    int32_t id;    /* UNIGRAM_UNKNOWN: a character that is no piece */
};

struct unigram {
    struct unigram_node *nodes; /* mem_*, one more than bytes */
    size_t size;
};

/* Fills nodes[0 .. len]: afterwards nodes[p].from of the pieces of the best cut points forward, to
 * where the piece ends that begins at p, whose id is nodes[p].id. step: called once a character.
 * ERR_MEMORY. */
int unigram_cut(struct unigram *u, const struct tokenizer *t, const char *text, size_t len,
                int (*step)(void *ctx), void *ctx, struct error *e);

#endif
