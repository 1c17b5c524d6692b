/* The four quarter sums of rule 2 (engine/device/numerics.h), for AVX-512 kernels that keep a group
 * of 16 rows, one a lane, for each token. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_QUARTERS_AVX512_H
#define ENGINE_DEVICE_CPU_KERNELS_QUARTERS_AVX512_H

#include <immintrin.h>

/* Sums of ng groups as the quarters come; after the last one they are stored. */
static inline __attribute__((always_inline)) void keep_quarter(int quarter, const __m512 acc[2],
                                                               __m512 saved[2][2], const int ng,
                                                               float *out)
{
    for (int g = 0; g < ng; g++) {
        if (quarter == 0 || quarter == 2)
            saved[quarter / 2][g] = acc[g];
        else if (quarter == 1)
            saved[0][g] = _mm512_add_ps(saved[0][g], acc[g]);
        else
            _mm512_storeu_ps(out + 16 * g,
                             _mm512_add_ps(saved[0][g], _mm512_add_ps(saved[1][g], acc[g])));
    }
}

#endif
