/* State of a tokenizer's decoder (decoder.h) within a text: plain data of a stream, copied
 * freely. */
#ifndef ENGINE_TEXT_DECODING_H
#define ENGINE_TEXT_DECODING_H

#include <stdbool.h>

#define DECODE_STEPS_MAX 8
#define DECODE_HELD_MAX 8 /* most bytes held back by a step */

/* State of each step and its held bytes. */
struct decoding {
    struct decode_state {
        int tokens; /* started so far */
        int held;   /* bytes that may change: the start of a pattern, blanks at the end */
        int left;   /* of Strip: how many may still be removed at this token's start */
        bool open;  /* inside a token: of bytes, or the fused one */
    } steps[DECODE_STEPS_MAX];
    bool begun;
};

#endif
