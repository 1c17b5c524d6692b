/* Prefetching weights, for kernels that read `groups` consecutive row groups in parallel, each
 * `group` bytes. Every line is prefetched twice: far ahead into the second-level cache, near ahead
 * into the first. On a Xeon whose read bandwidth per core is limited by its outstanding lines, this
 * reads 18 GB/s where either distance alone reads 14 to 16; four kilobytes and more ahead are too
 * far. Requests are best spread over a block's multiplications: a handful at once fills the queue
 * of the first-level cache. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_PREFETCH_AVX512_H
#define ENGINE_DEVICE_CPU_KERNELS_PREFETCH_AVX512_H

#include "engine/device/cpu/kernels/prefetch.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

struct prefetch {
    const uint8_t *far, *near;
    size_t group;
};

/* For reads at `at`, `left` bytes before its group's end. After the last of the current groups come
 * the next ones. */
static inline __attribute__((always_inline)) struct prefetch prefetch_from(const uint8_t *at,
                                                                           size_t left,
                                                                           size_t group,
                                                                           const int groups)
{
    enum { FAR = PREFETCH_AVX512_GEMM_FAR, NEAR = PREFETCH_AVX512_GEMM_NEAR };
    size_t skip = (size_t)(groups - 1) * group;

    return (struct prefetch){at + FAR + (left > FAR ? 0 : skip),
                             at + NEAR + (left > NEAR ? 0 : skip), group};
}

/* Part i of `parts` of the next `bytes`; both are constants. */
static inline __attribute__((always_inline)) void prefetch_part(const struct prefetch *a,
                                                                const int groups, const int bytes,
                                                                const int i, const int parts)
{
    const int lines = (bytes + 63) / 64, first = lines * i / parts, last = lines * (i + 1) / parts;

    for (int g = 0; g < groups; g++)
#pragma GCC unroll 10
        for (int k = first; k < last; k++) {
            _mm_prefetch((const char *)a->far + (size_t)g * a->group + 64 * k, _MM_HINT_T1);
            _mm_prefetch((const char *)a->near + (size_t)g * a->group + 64 * k, _MM_HINT_T0);
        }
}

#endif
