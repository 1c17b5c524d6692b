/* Common declarations of the schema reader: schema.c walks the document and follows references,
 * schema_numbers.c, schema_strings.c and schema_objects.c (arrays too) read the keywords of their
 * types, schema_literals.c writes given values. For these files only; one thread.
 *
 * Functions that return an expression (build.h) return -1 after a failure: with s->e set if the
 * schema is refused, else the build has failed. */
#ifndef ENGINE_TEXT_GRAMMAR_SCHEMA_PARTS_H
#define ENGINE_TEXT_GRAMMAR_SCHEMA_PARTS_H

#include "engine/text/grammar/build.h"

#include <jansson.h>

#define SCHEMA_REFS_MAX 4096

struct schema_place { /* of the schema being read, from the root; NULL: the root */
    const struct schema_place *above;
    const char *key;
};

struct schema {
    const json_t *root;
    struct grammar_build build;
    struct {
        const json_t *to;
        int rule;
    } refs[SCHEMA_REFS_MAX];
    int n_refs;
    int any, string, blank; /* rules that every schema may need */
    int depth;
    struct error *e;
};

/* ---- schema.c ---- */

/* Refuses the schema, returns -1; the first refusal is the error, with the JSON pointer of p and,
 * unless it is NULL, key. */
int schema_refuse(struct schema *s, const struct schema_place *p, const char *key, const char *why);
/* A count among the keywords of o; `none` if absent, -2: refused. */
int schema_count(struct schema *s, const json_t *o, const char *key, int none,
                 const struct schema_place *p);
int schema_any(struct schema *s); /* any value */
int schema_value(struct schema *s, const json_t *v, const struct schema_place *p);
/* The schema v found in p under key; NULL: any value. */
int schema_sub(struct schema *s, const json_t *v, const struct schema_place *p, const char *key);

/* ---- the types, by the keywords of o ---- */

int schema_integer(struct schema *s, const json_t *o, const struct schema_place *p);
int schema_number(struct schema *s, const json_t *o, const struct schema_place *p);
int schema_string(struct schema *s, const json_t *o, const struct schema_place *p);
int schema_array(struct schema *s, const json_t *o, const struct schema_place *p);
int schema_object(struct schema *s, const json_t *o, const struct schema_place *p);

int schema_any_number(struct schema *s);
int schema_character(struct schema *s); /* one of a string, escaped or not */
/* A string of so many characters, with its quotes; max -1: any number. */
int schema_characters(struct schema *s, int min, int max);
/* A given value as JSON writes it, blanks between its parts. */
int schema_literal(struct schema *s, const json_t *v);

/* ---- pieces ---- */

static inline int text(struct schema *s, const char *t)
{
    return build_text(&s->build, t);
}

static inline int seq(struct schema *s, int a, int b)
{
    return build_seq(&s->build, a, b);
}

static inline int alt(struct schema *s, int a, int b)
{
    return build_alt(&s->build, a, b);
}

static inline int range(struct schema *s, uint32_t lo, uint32_t hi)
{
    return build_class(&s->build, &(struct code_range){lo, hi}, 1);
}

static inline int blank(struct schema *s)
{
    return build_call(&s->build, s->blank);
}

/* , or : and the blanks around it */
static inline int comma(struct schema *s)
{
    return seq(s, seq(s, blank(s), text(s, ",")), blank(s));
}

static inline int colon(struct schema *s)
{
    return seq(s, seq(s, blank(s), text(s, ":")), blank(s));
}

#endif
