/* Inside engine/layout only: the types of quantize_low.c. Pure; any thread. */
#ifndef ENGINE_LAYOUT_QUANTIZE_LOW_H
#define ENGINE_LAYOUT_QUANTIZE_LOW_H

#include <stdint.h>

/* One block of the file, from finite elements; the importance of its columns or NULL. */
void quantise_q2_k(const float *x, const float *importance, uint8_t *out);
void quantise_q3_k(const float *x, const float *importance, uint8_t *out);
void quantise_iq4_nl(const float *x, const float *importance, uint8_t *out);
void quantise_iq4_xs(const float *x, const float *importance, uint8_t *out);
void quantise_mxfp4(const float *x, const float *importance, uint8_t *out);

#endif
