/* AVX-512 dot products of the formats in formats.h: 16 rows, one a lane, as kernels_avx512.c does for Q8_0 and Q4_0. The unpacking of the
 * bits, the only part that differs, is done once for all tokens of a panel. */
#include "engine/device/cpu/kernels/formats.h"

#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/ahead_avx512.h"
#include "engine/device/cpu/kernels/unpack_avx512.h"

#define FEW 6                   /* tokens whose sums of two row groups fit into registers */

INLINE __m512i broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}

/* Words from .. from+3 or all eight (`count`) of ng groups with nt tokens into integer sums that begin at `start` (one a token). The chains
 * of all nt * ng sums stand side by side, as in kernels_avx512.c. */
INLINE void sums(const struct block *b, const int ng, const struct act_block *a, const int nt, int from, const int count, __m512i s[4][2])
{
#pragma GCC unroll 8
    for (int k = from; k < from + count; k++)
#pragma GCC unroll 4
        for (int t = 0; t < nt; t++) {
            __m512i x = broadcast(a[t].q + 4 * k);

            for (int g = 0; g < ng; g++)
                s[t][g] = _mm512_dpbusd_epi32(s[t][g], b[g].w[k], x);
        }
}

INLINE int32_t start_of(enum dtype type, const struct act_block *a)
{
    return type == DTYPE_Q5_0 ? 2 * a->m8 : type == DTYPE_IQ4_NL ? a->m128 : 0;
}

/* What a block's integer sum adds to a token's sum: scaled, and the block's minimum taken into account. */
INLINE __m512 add_block(enum dtype type, const struct block *b, __m512 f, const struct act_block *a, __m512 acc)
{
    __m512 d = _mm512_set1_ps(a->d);

    acc = _mm512_fmadd_ps(f, _mm512_mul_ps(b->d, d), acc);
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
        acc = _mm512_fmadd_ps(_mm512_set1_ps(a->fsum), _mm512_mul_ps(b->m, d), acc);
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K)
        acc = _mm512_fnmadd_ps(_mm512_set1_ps(a->fsum), _mm512_mul_ps(b->m, d), acc);
    return acc;
}

/* One block, unpacked, for a few tokens. */
INLINE void block_step(enum dtype type, const struct block *b, const int ng, const struct act_block *a, const int nt, __m512 acc[][2])
{
    __m512i s[4][2];
    __m512 f[4][2];

    for (int half = 0; half < (type == DTYPE_Q6_K ? 2 : 1); half++) {
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++)
                s[t][g] = _mm512_set1_epi32(type == DTYPE_Q6_K ? -32 * (half ? a[t].sum - a[t].low : a[t].low) : start_of(type, &a[t]));
        sums(b, ng, a, nt, 4 * half, type == DTYPE_Q6_K ? 4 : 8, s);
        /* Q6_K: the halves' sums and their products with the scales are integers below 2^24, which F32 holds exactly. */
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++) {
                __m512 x = _mm512_cvtepi32_ps(s[t][g]);

                f[t][g] = type != DTYPE_Q6_K ? x : half ? _mm512_fmadd_ps(x, b[g].f1, f[t][g]) : _mm512_mul_ps(x, b[g].f0);
            }
    }
    for (int t = 0; t < nt; t++)
        for (int g = 0; g < ng; g++)
            acc[t][g] = add_block(type, &b[g], f[t][g], &a[t], acc[t][g]);
}

/* The same for up to FEW tokens of two groups, each pair of words unpacked where it is used; not for Q6_K. */
INLINE void packed_step(enum dtype type, const uint8_t *data, size_t next, struct block b[2], const struct act_block *a, const int nt,
                        const struct ahead *ahead, const int bytes, __m512 acc[][2])
{
    __m512i s[FEW][2];

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        s[t][0] = s[t][1] = _mm512_set1_epi32(start_of(type, &a[t]));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i low[2], high[2];

        ahead_ask(ahead, 2, bytes, k, 4);
        for (int g = 0; g < 2; g++)
            unpack_two(type, data + (size_t)g * next, k, &low[g], &high[g]);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i x = broadcast(a[t].q + 4 * k);

            for (int g = 0; g < 2; g++)
                s[t][g] = _mm512_dpbusd_epi32(s[t][g], low[g], x);
        }
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i x = broadcast(a[t].q + 16 + 4 * k);

            for (int g = 0; g < 2; g++)
                s[t][g] = _mm512_dpbusd_epi32(s[t][g], high[g], x);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int g = 0; g < 2; g++)
            acc[t][g] = add_block(type, &b[g], _mm512_cvtepi32_ps(s[t][g]), &a[t], acc[t][g]);
}

/* ng (1 or 2) groups by nt tokens. `few`: two groups, nt is a constant and small enough for the sums to stay in registers; otherwise they stay
 * in the first-level cache. */
INLINE void dot_tile(enum dtype type, const uint8_t *group, const int ng, int n, const struct act_block *a, const int nt, const int few, float *out,
                     ptrdiff_t stride)
{
    const int per = format_blocks(type), head_bytes = format_head(type) * 16, block_bytes = format_block_bytes(type) * 16;
    const int ask = block_bytes + head_bytes / per;     /* a block's share of its unit */
    const size_t unit_bytes = (size_t)(head_bytes + per * block_bytes), next = unit_bytes * (size_t)(n / per);
    __m512 acc[KERNEL_TILE][2], saved[2][KERNEL_TILE][2];
    struct head h[2];

    for (int quarter = 0; quarter < 4; quarter++) {
        int begin = (int)((int64_t)quarter * n / 4), end = (int)((int64_t)(quarter + 1) * n / 4), j = begin % per;
        const uint8_t *unit = group + (size_t)(begin / per) * unit_bytes;

#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++)
                acc[t][g] = _mm512_setzero_ps();
        for (int g = 0; g < ng; g++)
            read_head(type, unit + (size_t)g * next, &h[g]);
        for (int at = begin; at < end; at++, a += nt) {
            const uint8_t *data = unit + head_bytes + j * block_bytes;
            struct ahead ahead = ahead_of(data, (size_t)(n - at) * (size_t)ask, next, ng);
            struct block b[2];
            int t = 0;

            for (int g = 0; g < ng; g++) {
                read_scales(type, &h[g], j, &b[g]);
                if (!few || type == DTYPE_Q6_K)
                    unpack(type, data + (size_t)g * next, b[g].w);
            }
            if (++j == per && at + 1 < end) {
                j = 0;
                unit += unit_bytes;
                for (int g = 0; g < ng; g++)
                    read_head(type, unit + (size_t)g * next, &h[g]);
            }
            if (few && type != DTYPE_Q6_K) {
                packed_step(type, data, next, b, a, nt, &ahead, ask, acc);
                continue;
            }
            ahead_ask(&ahead, ng, ask, 0, 1);
            if (few) {
                block_step(type, b, ng, a, nt, acc);
                continue;
            }
            for (; t + 4 <= nt; t += 4)
                block_step(type, b, ng, a + t, 4, acc + t);
            if (nt - t == 3)
                block_step(type, b, ng, a + t, 3, acc + t);
            else if (nt - t == 2)
                block_step(type, b, ng, a + t, 2, acc + t);
            else if (nt - t == 1)
                block_step(type, b, ng, a + t, 1, acc + t);
        }
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++) {
                if (quarter == 0 || quarter == 2)
                    saved[quarter / 2][t][g] = acc[t][g];
                else if (quarter == 1)
                    saved[0][t][g] = _mm512_add_ps(saved[0][t][g], acc[t][g]);
                else
                    _mm512_storeu_ps(out + t * stride + 16 * g, _mm512_add_ps(saved[0][t][g], _mm512_add_ps(saved[1][t][g], acc[t][g])));
            }
    }
}

INLINE void dot_any(enum dtype type, const uint8_t *at, int groups, int cols, const struct act_block *panel, int nt, float *out, ptrdiff_t stride)
{
    size_t bytes = dtype_row_bytes(type, cols) * 16;
    int n = cols / NUM_BLOCK;

    for (; groups >= 2; groups -= 2, at += 2 * bytes, out += 32) {
        if (nt == 1)
            dot_tile(type, at, 2, n, panel, 1, 1, out, stride);
        else if (nt == 2)
            dot_tile(type, at, 2, n, panel, 2, 1, out, stride);
        else if (nt == 3)
            dot_tile(type, at, 2, n, panel, 3, 1, out, stride);
        else if (nt == 4)
            dot_tile(type, at, 2, n, panel, 4, 1, out, stride);
        else if (nt == 5 && type != DTYPE_Q6_K)
            dot_tile(type, at, 2, n, panel, 5, 1, out, stride);
        else if (nt == 6 && type != DTYPE_Q6_K)
            dot_tile(type, at, 2, n, panel, 6, 1, out, stride);
        else
            dot_tile(type, at, 2, n, panel, nt, 0, out, stride);
    }
    if (groups)
        dot_tile(type, at, 1, n, panel, nt, 0, out, stride);
}

#define X(type, name, blocks, head, bytes) \
    void format_##name##_avx512(const void *weights, int groups, int width, int cols, const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride) \
    { \
        if (width == 16) \
            dot_any(type, weights, groups, cols, panel, nt, out, out_stride); \
        else \
            format_##name##_avx2(weights, groups, width, cols, panel, nt, out, out_stride); \
    }
FORMATS(X)
#undef X
#endif
