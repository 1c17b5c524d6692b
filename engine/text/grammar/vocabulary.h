/* The texts of a vocabulary as a trie in one array, in depth-first order: a node's children follow
 * it, and `skip` leads past them. For matcher.c. Immutable. */
#ifndef ENGINE_TEXT_GRAMMAR_VOCABULARY_H
#define ENGINE_TEXT_GRAMMAR_VOCABULARY_H

#include "engine/text/tokenizer.h"

#include <stdint.h>

#define VOCABULARY_DEPTH 256 /* longer texts are never allowed */

struct vocabulary_node {
    int32_t skip;  /* distance to the next node outside its subtree */
    int32_t token; /* first one of this text, -1: none; `same` has the others */
    uint8_t byte;
    uint8_t depth; /* of the byte in the text, from 0 */
};

struct grammar_vocabulary {
    const struct tokenizer *tokenizer;
    int n_vocab, n_nodes;
    struct vocabulary_node *nodes;
    int32_t *same; /* n_vocab: next token of the same text, -1: none */
    int *stops, n_stops;
};

/* stops: end-of-answer tokens, allowed only where the grammar is complete. Other tokens without
 * text (control tokens) are never allowed. ERR_MEMORY. */
int grammar_vocabulary_new(struct grammar_vocabulary **out, const struct tokenizer *t, int n_vocab,
                           const int *stops, int n_stops, struct error *e);
void grammar_vocabulary_free(struct grammar_vocabulary *v);

#endif
