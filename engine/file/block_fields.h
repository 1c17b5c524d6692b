/* The fields of 32 elements of a quantised block. Plain data. */
#ifndef ENGINE_FILE_BLOCK_FIELDS_H
#define ENGINE_FILE_BLOCK_FIELDS_H

#include <stdint.h>

/* Element i, in half h, is value[i] * (d[h] * factor[h]) + m * least[h]; both products are exact.
 * Factors are 1 unless the format has them per half; without a minimum m is 0. */
struct block_fields {
    int8_t value[32];
    float d[2], m;
    int factor[2], least[2];
};

/* The factor of ik_llama.cpp's trellis (iqk_quantize.cpp, QuantizerIQKT::set_values). */
#define BLOCKS_TRELLIS 0xcbac1fedu

extern const int8_t blocks_values[][16]; /* rows: the lookup column of formats.def */

#endif
