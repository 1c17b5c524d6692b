/* What products of quantised weights read: activations, and the rows of one token's product. Apart
 * from kernels.h, so that the files of formats, which take minutes to compile, depend on nothing
 * else.
 *
 * Quantised activations are rows of `struct act_block`; several rows (tokens) that are multiplied
 * with the same weights form a panel: block b of token t at panel[b * nt + t], nt <= KERNEL_TILE. A
 * single row is a panel of one. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_PRODUCTS_H
#define ENGINE_DEVICE_CPU_KERNELS_PRODUCTS_H

#include "engine/base/half.h"
#include "engine/device/cpu/kernels/patterns.h"
#include "engine/device/widths.h"
#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KERNEL_TILE 128 /* most tokens of a panel */
/* most tokens per call of dot_raw: with more, packing on the fly costs less than reading rows
 * again */
#define KERNEL_RAW_TOKENS 8
/* tokens whose integer sums of two row groups fit into AVX-512's registers: the float sums, used
 * once per block, may be in memory */
#define KERNEL_SMALL_BATCH 8

/* 32 quantised activations (rule 1). The negated sums start the integer accumulators of weights
 * stored as value + 8 and value + 128. */
struct act_block {
    float d;
    int32_t sum, m8, m128;
    int8_t q[NUM_BLOCK];
    int32_t low; /* sum of q[0..15]: Q6_K has a scale for each half */
    float fsum;  /* sum, for formats with a minimum */
    /* start values of the sums of Q6_K's halves: -32 times those of q, the first from SUM_BITS on.
     * The struct is one cache line: matrix units load the q of many tokens at once */
    int32_t from[2];
};

/* An integer sum of less than 2^22 that starts at these bits is, read as a float, SUM_BASE more
 * than the sum: no conversion is needed. */
#define SUM_BITS 0x4b400000
#define SUM_BASE 12582912.0f

#define KERNEL_GEMV_GROUPS 4 /* most row groups multiplied with a token in parallel */

/* Addresses read together, up to KERNEL_GEMV_GROUPS, and where reading continues afterwards: a
 * hint, NULL if unknown. The last groups of a matrix may be fewer than their successors: next holds
 * KERNEL_GEMV_GROUPS addresses. */
struct kernel_gemv {
    const struct pattern *how;
    int n;
    const uint8_t *at[KERNEL_GEMV_GROUPS], *next[KERNEL_GEMV_GROUPS];
    float *out[KERNEL_GEMV_GROUPS];
};

/* How many of the groups from i on are read in parallel if at most `most` may be; next: where
 * reading continues after each. */
static inline int kernel_gemv_step(const struct kernel_gemv *s, int i, int most,
                                   const uint8_t *next[KERNEL_GEMV_GROUPS])
{
    int left = s->n - i, n = most >= 4 && left >= 4 ? 4 : most >= 2 && left >= 2 ? 2 : 1;

    for (int k = 0; k < n; k++)
        next[k] = i + n + k < s->n ? s->at[i + n + k] : s->next[i + n + k - s->n];
    return n;
}

#endif
