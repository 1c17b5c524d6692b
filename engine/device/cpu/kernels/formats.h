/* Dot products of the quantised formats besides Q8_0 and Q4_0, one file per instruction set. Their
 * packed layout: engine/layout/format.h. Pure functions: any thread. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_FORMATS_H
#define ENGINE_DEVICE_CPU_KERNELS_FORMATS_H

#include "engine/device/cpu/kernels/kernels.h"
#include "engine/layout/format.h"

/* struct kernels.dot of each set; FORMAT_DOTS(avx2) fills its table. */
#define X(type, name, blocks, head, bytes)                                                       \
    void format_##name##_scalar(const void *weights, int groups, int width, int cols,            \
                                const struct act_block *panel, int nt, float *out,               \
                                ptrdiff_t out_stride);                                           \
    void format_##name##_avx2(const void *weights, int groups, int width, int cols,              \
                              const struct act_block *panel, int nt, float *out,                 \
                              ptrdiff_t out_stride);                                             \
    void format_##name##_avxvnni(const void *weights, int groups, int width, int cols,           \
                                 const struct act_block *panel, int nt, float *out,              \
                                 ptrdiff_t out_stride);                                          \
    void format_##name##_avx512(const void *weights, int groups, int width, int cols,            \
                                const struct act_block *panel, int nt, float *out,               \
                                ptrdiff_t out_stride);                                           \
    void gemv_##name##_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a); \
    void format_##name##_amx(const void *weights, int groups, int width, int cols,               \
                             const struct act_block *panel, int nt, float *out,                  \
                             ptrdiff_t out_stride);
FORMATS(X)
#undef X
void format_q8_0_amx(const void *weights, int groups, int width, int cols,
                     const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride);
void format_q4_0_amx(const void *weights, int groups, int width, int cols,
                     const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride);
void gemv_q8_0_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a);
void gemv_q4_0_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a);
#define FORMAT_GEMVS(set)                                               \
    [DTYPE_Q4_1] = gemv_q4_1_##set, [DTYPE_Q5_0] = gemv_q5_0_##set,     \
    [DTYPE_Q5_1] = gemv_q5_1_##set, [DTYPE_IQ4_NL] = gemv_iq4_nl_##set, \
    [DTYPE_Q4_K] = gemv_q4_k_##set, [DTYPE_Q5_K] = gemv_q5_k_##set,     \
    [DTYPE_Q6_K] = gemv_q6_k_##set, [DTYPE_Q8_0] = gemv_q8_0_##set, [DTYPE_Q4_0] = gemv_q4_0_##set
#define FORMAT_DOTS(set)                                                    \
    [DTYPE_Q4_1] = format_q4_1_##set, [DTYPE_Q5_0] = format_q5_0_##set,     \
    [DTYPE_Q5_1] = format_q5_1_##set, [DTYPE_IQ4_NL] = format_iq4_nl_##set, \
    [DTYPE_Q4_K] = format_q4_k_##set, [DTYPE_Q5_K] = format_q5_k_##set,     \
    [DTYPE_Q6_K] = format_q6_k_##set

#endif
