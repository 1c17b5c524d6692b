/* The tokens a grammar allows next, as a mask over a vocabulary. The automaton's configurations are
 * turned into states of a DFA lazily, each with a table of 256 successors, and a mask is computed
 * by walking the trie of the vocabulary's texts, and cached per state.
 *
 * A vocabulary is immutable once made: any thread. A matcher belongs to one session; engine thread.
 * A cursor is a number: it is copied freely, and drafted tokens advance a copy. Memory grows with
 * each new state and is bounded; a grammar that would need more fails closed. */
#ifndef ENGINE_TEXT_GRAMMAR_MATCHER_H
#define ENGINE_TEXT_GRAMMAR_MATCHER_H

#include "engine/text/grammar/grammar.h"
#include "engine/text/tokenizer.h"

struct grammar_vocabulary;
struct matcher;

/* Nothing more is allowed; the first state. */
#define MATCHER_DEAD 0

/* Shares the grammar, borrows the vocabulary. ERR_MEMORY. */
int matcher_new(struct matcher **out, struct grammar *g, const struct grammar_vocabulary *v,
                struct error *e);
void matcher_free(struct matcher *m);
const struct grammar *matcher_grammar(const struct matcher *m);

/* The cursor at the start of an answer. */
int matcher_start(const struct matcher *m);
/* One bit per token, n_vocab of them, ascending in words of 32: the allowed tokens. Valid until the
 * next call for this matcher. NULL: it failed (matcher_failed). */
const uint32_t *matcher_mask(struct matcher *m, int cursor);
/* The cursor after a token; MATCHER_DEAD: not allowed. Unchanged after a token that ends the
 * answer. */
int matcher_accept(struct matcher *m, int cursor, int id);
/* The same for bytes. */
int matcher_accept_text(struct matcher *m, int cursor, const char *text, size_t n);
/* Whether the text so far is complete by the grammar. */
bool matcher_complete(const struct matcher *m, int cursor);
/* Between tokens: discards states if there are many; other cursors are void then. */
int matcher_settle(struct matcher *m, int cursor);
/* NULL, or why it allows nothing any more. */
const char *matcher_failed(const struct matcher *m);

#endif
