/* ECMAScript regular expressions for the contents of a JSON string between its quotes: matches
 * JSON's escapes of characters. Pure; any thread. */
#ifndef ENGINE_TEXT_GRAMMAR_PATTERN_H
#define ENGINE_TEXT_GRAMMAR_PATTERN_H

#include "engine/text/grammar/build.h"

/* An expression; -1: refused, *why is the reason (a literal), or the build has failed. As in JSON
 * schemas, a pattern need not match the whole text unless anchored by ^ and $, which are allowed
 * only at the ends of its outermost alternatives. Groups, classes, quantifiers, and context-free
 * escapes are supported; assertions, backward references and \p are not. */
int pattern_build(struct grammar_build *b, const char *pattern, const char **why);
/* The pattern of a "format"; NULL: unknown. A literal. */
const char *pattern_of_format(const char *name);

#endif
