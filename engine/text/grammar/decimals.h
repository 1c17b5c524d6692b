/* Decimal numbers between two bounds, as JSON writes them without a power. Pure; any thread. */
#ifndef ENGINE_TEXT_GRAMMAR_DECIMALS_H
#define ENGINE_TEXT_GRAMMAR_DECIMALS_H

#include "engine/text/grammar/build.h"

struct decimal_bound {
    bool given, open; /* open: the bound itself is outside */
    double value;     /* at most 9e15 either way */
};

/* An expression; -1: nothing lies between them, *why says so (a literal), or the build failed. */
int decimals_build(struct grammar_build *b, const struct decimal_bound *least,
                   const struct decimal_bound *most, const char **why);

#endif
