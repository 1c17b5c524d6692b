/* Decimal numbers between two bounds, in JSON's notation without exponent. Pure; any thread. */
#ifndef ENGINE_TEXT_GRAMMAR_DECIMALS_H
#define ENGINE_TEXT_GRAMMAR_DECIMALS_H

#include "engine/text/grammar/build.h"

struct decimal_bound {
    bool given, open; /* open: the bound itself is excluded */
    double value;     /* at most 9e15 either way */
};

/* An expression; -1: the range is empty, *why is the reason (a literal), or the build failed. */
int decimals_build(struct grammar_build *b, const struct decimal_bound *least,
                   const struct decimal_bound *most, const char **why);

#endif
