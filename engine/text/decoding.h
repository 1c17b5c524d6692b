/* Where a text stands in a tokenizer's decoder (decoder.h): plain data that a stream carries along,
 * copied freely. */
#ifndef ENGINE_TEXT_DECODING_H
#define ENGINE_TEXT_DECODING_H

#include <stdbool.h>

#define DECODE_STEPS_MAX 8
#define DECODE_HELD_MAX 8 /* bytes that a step may hold back */

/* What each step has met and holds back. */
struct decoding {
    struct decode_state {
        int tokens; /* begun so far */
        int held;   /* bytes that may become something else: a pattern begun, blanks at the end */
        int left;   /* of Strip: how many may still go at this token's start */
        bool open;  /* a token is under way: of bytes, or the one of all tokens */
    } steps[DECODE_STEPS_MAX];
    bool begun;
};

#endif
