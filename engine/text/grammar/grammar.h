/* A grammar that constrains answers: compiled from llama.cpp's GBNF (grammars/README.md there) or
 * from a JSON schema into a pushdown automaton over bytes. Immutable and reference-counted: any
 * thread may hold one. A matcher (matcher.h) computes what it allows.
 *
 * Untrusted input is limited: left recursion, rules that never end, more than GRAMMAR_NODES nodes,
 * GRAMMAR_DEPTH nested parentheses or GRAMMAR_BYTES of text are refused with one line. */
#ifndef ENGINE_TEXT_GRAMMAR_GRAMMAR_H
#define ENGINE_TEXT_GRAMMAR_GRAMMAR_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_NODES (1 << 19)
#define GRAMMAR_DEPTH 128
#define GRAMMAR_BYTES ((size_t)1 << 20)

/* One step. Indices of nodes; every path ends in a NODE_RETURN. */
enum node_kind {
    NODE_BYTE,  /* lo .. hi, then a */
    NODE_SPLIT, /* a or b */
    NODE_CALL,  /* rule b, then a */
    NODE_RETURN
};

struct grammar_node {
    uint8_t kind, lo, hi;
    int32_t a, b;
};

struct grammar {
    struct grammar_node *nodes;
    int n_nodes;
    int32_t *starts; /* of each rule; rule 0 is the root */
    int32_t *firsts; /* the lowest node of each, its NODE_RETURN */
    int n_rules;
    bool *alive; /* n_nodes: an end is reachable from there */
    int refs;    /* atomic */
};

/* Parses GBNF; starts at the rule `root`. ERR_INPUT names line and cause. ERR_MEMORY. */
int grammar_from_gbnf(struct grammar **out, const char *text, size_t n, struct error *e);
/* A JSON schema: see schema.c for the keywords. ERR_INPUT names the JSON pointer and the cause.
 * ERR_MEMORY. */
int grammar_from_schema(struct grammar **out, const char *json, size_t n, struct error *e);

struct grammar *grammar_share(struct grammar *g); /* another reference; NULL gives NULL */
void grammar_free(struct grammar *g);             /* drops a reference; accepts NULL */

#endif
