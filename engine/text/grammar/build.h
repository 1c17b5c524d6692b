/* Builds a grammar: expressions in an arena, then nodes. For the readers of GBNF and of schemas.
 * One thread. Failure (no memory, too large) is sticky; grammar_build_end returns it. */
#ifndef ENGINE_TEXT_GRAMMAR_BUILD_H
#define ENGINE_TEXT_GRAMMAR_BUILD_H

#include "engine/text/grammar/grammar.h"

struct code_range {
    uint32_t lo, hi;
};

enum expr_kind { EXPR_EMPTY, EXPR_BYTES, EXPR_RANGE, EXPR_SEQ, EXPR_ALT, EXPR_REPEAT, EXPR_RULE };

struct expr {
    enum expr_kind kind;
    int a, b;     /* expressions; EXPR_RULE: a rule; EXPR_BYTES: where in `text`, how many */
    int min, max; /* of a repetition, max -1: any; EXPR_RANGE: bytes */
};

struct grammar_build {
    struct expr *exprs;
    int n_exprs, expr_room;
    char *text;
    int n_text, text_room;
    int *rules; /* expression of each rule, -1: not yet */
    int n_rules, rule_room;
    struct grammar_node *nodes;
    int n_nodes, node_room;
    bool failed, too_large;
};

/* All of these return an expression; -1 after a failure. */
int build_empty(struct grammar_build *b);
int build_bytes(struct grammar_build *b, const char *text, size_t n);
int build_text(struct grammar_build *b, const char *text);
/* code points, as UTF-8; surrogates are dropped. An empty class can never match. */
int build_class(struct grammar_build *b, const struct code_range *ranges, size_t n);
/* Texts of n bytes, at most BUILD_BETWEEN, from lo to hi; each byte but the first is any from
 * `least` to `most`. */
#define BUILD_BETWEEN 24
int build_between(struct grammar_build *b, const char *lo, const char *hi, size_t n, char least,
                  char most);
int build_seq(struct grammar_build *b, int left, int right);
int build_alt(struct grammar_build *b, int left, int right); /* left may be -1: only right */
int build_repeat(struct grammar_build *b, int of, int min, int max);
int build_call(struct grammar_build *b, int rule);

int build_rule(struct grammar_build *b); /* a new one, without its expression; -1 */
void build_rule_set(struct grammar_build *b, int rule, int expr);

/* Makes the grammar; rule 0 is the root. name (may be NULL) returns a rule's name, for errors. b is
 * released, also after a failure. ERR_INPUT: left recursion, a grammar that no finite text matches,
 * too large or nested too deeply. ERR_MEMORY. */
int grammar_build_end(struct grammar_build *b, const char *(*name)(void *ctx, int rule), void *ctx,
                      struct grammar **out, struct error *e);
void grammar_build_release(struct grammar_build *b);

#endif
