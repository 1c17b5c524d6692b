/* What kernels_avx2.c cannot compile of the set for AVX-VNNI. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"

#if defined(__AVXVNNI__)
#include <immintrin.h>

double peak_int8_avxvnni(void)
{
    volatile int seed = 3;
    __m256i a[12], b = _mm256_set1_epi32(seed), c = _mm256_set1_epi32(seed + 1), sum;

    for (int k = 0; k < 12; k++)
        a[k] = _mm256_setzero_si256();
    for (int i = 0; i < 1 << 20; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++)
            a[k] = _mm256_dpbusd_avx_epi32(a[k], b, c);
    }
    sum = a[0];
    for (int k = 1; k < 12; k++)
        sum = _mm256_add_epi32(sum, a[k]);
    seed = _mm256_extract_epi32(sum, 0);
    return 12.0 * 64 * (1 << 20);
}
#endif
