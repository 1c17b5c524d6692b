/* Dot products of the quantised formats (engine/file/formats.def), one file per instruction set.
 * Their packed layout: engine/layout/format.h. Pure functions: any thread. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_FORMATS_H
#define ENGINE_DEVICE_CPU_KERNELS_FORMATS_H

#include "engine/device/cpu/kernels/products.h"
#include "engine/layout/format.h"

/* struct kernels.dot and .gemv of each set. */
#define NEON_FORMAT(name, set)                                                    \
    void dot_##name##_##set(const void *weights, int groups, int width, int cols, \
                            const struct act_block *panel, int nt, float *out,    \
                            ptrdiff_t out_stride);                                \
    void gemv_##name##_##set(const struct kernel_gemv *s, int cols, const struct act_block *a);
#define FORMAT(id, name, ...)  \
    NEON_FORMAT(name, neon)    \
    NEON_FORMAT(name, dotprod) \
    NEON_FORMAT(name, i8mm)
#include "engine/file/formats.def"
#undef NEON_FORMAT
#define FORMAT(id, name, ...)                                                                     \
    void dot_##name##_scalar(const void *weights, int groups, int width, int cols,                \
                             const struct act_block *panel, int nt, float *out,                   \
                             ptrdiff_t out_stride);                                               \
    void dot_##name##_avx2(const void *weights, int groups, int width, int cols,                  \
                           const struct act_block *panel, int nt, float *out,                     \
                           ptrdiff_t out_stride);                                                 \
    void dot_##name##_avxvnni(const void *weights, int groups, int width, int cols,               \
                              const struct act_block *panel, int nt, float *out,                  \
                              ptrdiff_t out_stride);                                              \
    void dot_##name##_avx512(const void *weights, int groups, int width, int cols,                \
                             const struct act_block *panel, int nt, float *out,                   \
                             ptrdiff_t out_stride);                                               \
    void dot_##name##_amx(const void *weights, int groups, int width, int cols,                   \
                          const struct act_block *panel, int nt, float *out,                      \
                          ptrdiff_t out_stride);                                                  \
    void gemv_##name##_avx2(const struct kernel_gemv *s, int cols, const struct act_block *a);    \
    void gemv_##name##_avxvnni(const struct kernel_gemv *s, int cols, const struct act_block *a); \
    void gemv_##name##_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a);
#include "engine/file/formats.def"

/* Start value of an integer sum of unsigned codes, such that the result is the sum of their
 * values. */
static inline int32_t format_sum_start(enum dtype type, const struct act_block *a)
{
    const int zero = format_of[type].zero;

    return zero == 128 ? a->m128 : zero % 8 ? -zero * a->sum : zero ? zero / 8 * a->m8 : 0;
}
/* The same for one half of a block. */
static inline int32_t format_half_start(enum dtype type, const struct act_block *a, int half)
{
    return format_of[type].zero * (half ? a->low - a->sum : -a->low);
}

#endif
