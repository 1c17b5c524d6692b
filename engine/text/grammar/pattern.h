/* Regular expressions of ECMAScript as what a JSON string may hold between its quotes: characters
 * that JSON escapes are written so. Pure; any thread. */
#ifndef ENGINE_TEXT_GRAMMAR_PATTERN_H
#define ENGINE_TEXT_GRAMMAR_PATTERN_H

#include "engine/text/grammar/build.h"

/* An expression; -1: refused, *why says the reason (a literal), or the build has failed. As in JSON
 * schemas, a pattern need not match the whole text unless ^ and $ say so; these stand at the ends
 * of its outermost alternatives alone. Groups, classes, quantifiers, and the escapes that need no
 * context are known; assertions, backward references and \p are not. */
int pattern_build(struct grammar_build *b, const char *pattern, const char **why);
/* The pattern of a "format"; NULL: not known. A literal. */
const char *pattern_of_format(const char *name);

#endif
