/* Whole numbers between two bounds, digit by digit: what is written so far alone says what may
 * follow. Pure; any thread. */
#ifndef ENGINE_TEXT_GRAMMAR_WHOLES_H
#define ENGINE_TEXT_GRAMMAR_WHOLES_H

#include "engine/text/grammar/build.h"

#include <stdbool.h>
#include <stdint.h>

/* An expression (build.h) of those from lo to hi, lo <= hi; open: hi is not read, no bound. No
 * sign, no zeros in front. */
int wholes_build(struct grammar_build *b, uint64_t lo, uint64_t hi, bool open);

#endif
