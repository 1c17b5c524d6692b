/* What a grammar allows next, as a mask over a vocabulary. The automaton's configurations become
 * the states of a DFA as they are met, with a table of 256 followers each, and a mask is a walk
 * over the trie of the vocabulary's texts, kept by state.
 *
 * A vocabulary is immutable once made: any thread. A matcher belongs to one session; engine thread.
 * A cursor is a number: it is copied freely, and drafted tokens step a copy. Memory grows where a
 * state is met for the first time and is bounded; a grammar that would need more fails closed. */
#ifndef ENGINE_TEXT_GRAMMAR_MATCHER_H
#define ENGINE_TEXT_GRAMMAR_MATCHER_H

#include "engine/text/grammar/grammar.h"
#include "engine/text/tokenizer.h"

struct grammar_vocabulary;
struct matcher;

/* Nothing more may come; the first state. */
#define MATCHER_DEAD 0

/* Shares the grammar, borrows the vocabulary. ERR_MEMORY. */
int matcher_new(struct matcher **out, struct grammar *g, const struct grammar_vocabulary *v,
                struct error *e);
void matcher_free(struct matcher *m);
const struct grammar *matcher_grammar(const struct matcher *m);

/* The cursor where nothing was said yet. */
int matcher_start(const struct matcher *m);
/* One bit a token, n_vocab of them, upwards in words of 32: what may come. Valid until the next
 * call for this matcher. NULL: it failed (matcher_failed). */
const uint32_t *matcher_mask(struct matcher *m, int cursor);
/* The cursor after a token; MATCHER_DEAD: it was not allowed. After a token that ends the answer it
 * stays. */
int matcher_accept(struct matcher *m, int cursor, int id);
/* Likewise after bytes. */
int matcher_accept_text(struct matcher *m, int cursor, const char *text, size_t n);
/* The text so far is one that the grammar allows. */
bool matcher_complete(const struct matcher *m, int cursor);
/* Between tokens: forgets states where there are many; other cursors are void then. */
int matcher_settle(struct matcher *m, int cursor);
/* NULL, or why it allows nothing any more. */
const char *matcher_failed(const struct matcher *m);

#endif
