/* Whole numbers between two bounds, digit by digit: the digits so far determine what may follow.
 * Pure; any thread. */
#ifndef ENGINE_TEXT_GRAMMAR_WHOLES_H
#define ENGINE_TEXT_GRAMMAR_WHOLES_H

#include "engine/text/grammar/build.h"

#include <stdbool.h>
#include <stdint.h>

/* An expression (build.h) for lo to hi, lo <= hi; open: no upper bound, hi is ignored. No sign, no
 * leading zeros. */
int wholes_build(struct grammar_build *b, uint64_t lo, uint64_t hi, bool open);

#endif
