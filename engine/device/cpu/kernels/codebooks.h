/* Codebooks (engine/file/grids.h) transposed: for each column of all points a byte, which vector
 * sets look up with byte permutations where others load whole points. Filled once, before kernels
 * run; then read by any thread. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_CODEBOOKS_H
#define ENGINE_DEVICE_CPU_KERNELS_CODEBOOKS_H

#include "engine/device/cpu/kernels/products.h"

#include <stddef.h>
#include <stdint.h>

/* Of a point of eight columns two bytes, two bits a column: 0, 1, 2 in the order of the values. Of
 * IQ3_XXS's four columns a byte each, of IQ3_S's a nibble, the first the lower one: magnitudes. */
struct codebooks {
    _Alignas(64) uint8_t iq2_xxs[2][256];
    uint8_t iq2_xs[2][512], iq2_s[2][1024];
    uint8_t iq3_xxs[4][256], iq3_s[2][512];
    uint8_t signs[128]; /* seven and an eighth, so that their number is even */
};

extern struct codebooks codebooks;

/* Called once, before the first kernel (by select.c). */
void codebooks_fill(void);

/* Points of a format. */
#define CODEBOOK_POINTS(type) \
    ((type) == DTYPE_IQ2_S ? 1024 : (type) == DTYPE_IQ2_XS || (type) == DTYPE_IQ3_S ? 512 : 256)

/* The formats, and struct kernels.gemv of each for processors with VBMI. */
#define CODEBOOK_FORMATS       \
    CODEBOOK(IQ3_XXS, iq3_xxs) \
    CODEBOOK(IQ3_S, iq3_s)     \
    CODEBOOK(IQ2_XXS, iq2_xxs) \
    CODEBOOK(IQ2_XS, iq2_xs)   \
    CODEBOOK(IQ2_S, iq2_s)

#define CODEBOOK(id, name) \
    void gemv_##name##_vbmi(const struct kernel_gemv *s, int cols, const struct act_block *a);
CODEBOOK_FORMATS
#undef CODEBOOK

/* Used instead on processors with fast gathers: formats whose points are too many for that. */
#define GATHERED_FORMATS   \
    GATHERED(IQ1_S, iq1_s) \
    GATHERED(IQ1_M, iq1_m) \
    GATHERED(IQ1_M_R, iq1_m_r)

#define GATHERED(id, name) \
    void gemv_##name##_gather(const struct kernel_gemv *s, int cols, const struct act_block *a);
GATHERED_FORMATS
#undef GATHERED

/* Its table, the bytes of each point in sequence; NULL: none. */
static inline const uint8_t *codebook_of(enum dtype type)
{
    switch (type) {
    case DTYPE_IQ2_XXS: return codebooks.iq2_xxs[0];
    case DTYPE_IQ2_XS: return codebooks.iq2_xs[0];
    case DTYPE_IQ2_S: return codebooks.iq2_s[0];
    case DTYPE_IQ3_XXS: return codebooks.iq3_xxs[0];
    case DTYPE_IQ3_S: return codebooks.iq3_s[0];
    default: return NULL;
    }
}

#endif
