/* AVX-512 dot products of the quantised formats: dot.inc, 16 rows, one per lane. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/prefetch_avx512.h"
#include "engine/device/cpu/kernels/vector_avx512.h"

#define GROUPS 2
#define STEP_TOKENS 4
#define SMALL_BATCH KERNEL_SMALL_BATCH
#define PAIRS 1
#define PREFETCH_TOKENS KERNEL_TILE

INLINE int most_words(enum dtype type)
{
    return 1;
}

INLINE vi multiply(enum dtype type, vi sum, const vi *w, const int8_t *q, const int n)
{
    return vi_dp4(sum, *w, vi_broadcast(q));
}

#include "engine/device/cpu/kernels/dot.inc"

#define FORMAT(id, name, ...)                                                               \
    void dot_##name##_avx512(const void *weights, int groups, int width, int cols,          \
                             const struct act_block *panel, int nt, float *out,             \
                             ptrdiff_t out_stride)                                          \
    {                                                                                       \
        if (width == VL)                                                                    \
            dot_rows(DTYPE_##id, weights, groups, VL, 0, cols, panel, nt, out, out_stride); \
        else                                                                                \
            dot_##name##_avx2(weights, groups, width, cols, panel, nt, out, out_stride);    \
    }
#include "engine/file/formats.def"
#endif
