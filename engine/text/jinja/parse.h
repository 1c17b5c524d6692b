/* Interface between the two halves of the parser: statements (parse.c) and the contents of {% %}
 * and {{ }} (expression.c). One thread. */
#ifndef ENGINE_TEXT_JINJA_PARSE_H
#define ENGINE_TEXT_JINJA_PARSE_H

#include "engine/text/jinja/data.h"

struct parser {
    struct arena *a;
    const char *s;
    size_t n, at;
    bool trim_next;    /* "-%}": following blanks are removed */
    bool block_before; /* a block or comment has just ended: trim_blocks */
    int loops;
    int branches; /* inside an if: unknown names there may never be reached */
    int uses;     /* enum macro_uses of the names read so far */
};

/* Words and signs skip leading blanks; parse_accept and parse_word consume one if present, the
 * others fail if it is missing. */
struct node *parse_node(struct parser *p, enum node_kind kind);
void parse_blanks(struct parser *p);
bool parse_accept(struct parser *p, const char *text);
void parse_expect(struct parser *p, const char *text);
bool parse_word(struct parser *p, const char *word);
struct str parse_name(struct parser *p);
struct node *parse_literal(struct parser *p, struct value v);
struct node *parse_expression(struct parser *p);
struct node *parse_filter(struct parser *p, struct node *operand); /* its name, arguments */
struct node *parse_or(struct parser *p);

#endif
