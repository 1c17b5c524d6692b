/* Codebooks of the IQ formats: points selected by indices in a block. Pure data, any thread. */
#ifndef ENGINE_FILE_GRIDS_H
#define ENGINE_FILE_GRIDS_H

#include <stdint.h>

/* Points of eight magnitudes, two words each; of four, one word. */
extern const uint32_t grid_iq2_xxs[2 * 256], grid_iq2_xs[2 * 512], grid_iq2_s[2 * 1024];
extern const uint32_t grid_iq3_xxs[256], grid_iq3_s[512];
/* Points of eight values of -1, 0, 1: each byte is 16 above eight times that. */
extern const uint32_t grid_iq1_s[2 * 2048];

#endif
