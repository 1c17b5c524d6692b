/* Checks a JSON value byte by byte: whether the bytes so far can still become a valid one
 * (RFC 8259). Nothing is allocated. Plain data; zeros: nothing was read yet. */
#ifndef ENGINE_TEXT_JSON_PREFIX_H
#define ENGINE_TEXT_JSON_PREFIX_H

#include <stdbool.h>

#define JSON_PREFIX_DEPTH 256 /* of nested values */

struct json_prefix {
    unsigned char state, digits; /* see json_prefix.c; of \u */
    const char *word;            /* rest of true, false or null */
    int depth;
    unsigned char objects[JSON_PREFIX_DEPTH / 8]; /* bit d: the value at depth d is an object */
};

/* false: no valid value begins with these bytes, or it is nested too deep; p is useless then. */
bool json_prefix_push(struct json_prefix *p, char c);
/* The object, list or string is complete (a number never is: it could go on). */
bool json_prefix_over(const struct json_prefix *p);

#endif
