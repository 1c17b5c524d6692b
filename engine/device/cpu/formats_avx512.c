/* AVX-512 dot products of the formats in formats.h: 16 rows, one a lane, as kernels_avx512.c does for Q8_0 and Q4_0. The unpacking of the
 * bits, the only part that differs, is done once for all tokens of a panel. */
#include "engine/device/cpu/formats.h"

#if defined(__AVX512VNNI__)
#include "engine/file/blocks.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* What the blocks of a unit share. */
struct head {
    __m512 d, m;
    __m512i scales[2], mins[2]; /* Q4_K, Q5_K: four bytes a lane */
    __m512i halves[4];          /* Q6_K */
};

INLINE __m512 halves_at(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

INLINE void read_head(enum dtype type, const uint8_t *unit, struct head *h)
{
    h->d = halves_at(unit);
    if (format_has_min(type))
        h->m = halves_at(unit + 32);
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
        __m512i s = _mm512_loadu_si512(unit + 64), m = _mm512_loadu_si512(unit + 128), both = _mm512_loadu_si512(unit + 192);
        __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);

        h->scales[0] = _mm512_and_si512(s, six);
        h->mins[0] = _mm512_and_si512(m, six);
        h->scales[1] = _mm512_or_si512(_mm512_and_si512(both, four), _mm512_and_si512(_mm512_srli_epi16(s, 2), top));
        h->mins[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(both, 4), four), _mm512_and_si512(_mm512_srli_epi16(m, 2), top));
    }
    if (type == DTYPE_Q6_K)
        for (int k = 0; k < 4; k++)
            h->halves[k] = _mm512_loadu_si512(unit + 32 + 64 * k);
}

/* Byte j of each lane as a number: one shuffle whose other bytes are zero (index bit 7). */
INLINE __m512 byte_of(__m512i x, int j)
{
    static const uint8_t index[4][16] = {
#define LANES(j) {j, 128, 128, 128, j + 4, 128, 128, 128, j + 8, 128, 128, 128, j + 12, 128, 128, 128}
        LANES(0), LANES(1), LANES(2), LANES(3)
#undef LANES
    };

    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)index[j]))));
}

INLINE __m512 signed_byte_of(__m512i x, int j)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_sll_epi32(x, _mm_cvtsi32_si128(24 - 8 * j)), 24));
}

/* The eight words of a block as unsigned bytes. */
INLINE void unpack(enum dtype type, const uint8_t *block, __m512i w[8])
{
    const uint8_t *payload = block + (format_block_bytes(type) - 16) * 16;
    __m512i nibble = _mm512_set1_epi8(15);

    for (int k = 0; k < 4; k++) {
        __m512i x = _mm512_loadu_si512(payload + 64 * k);

        w[k] = _mm512_and_si512(x, nibble);
        w[4 + k] = _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble);
    }
    if (type == DTYPE_IQ4_NL) {
        __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)blocks_iq4_values)), _mm512_set1_epi8((char)0x80));

        for (int k = 0; k < 8; k++)
            w[k] = _mm512_shuffle_epi8(table, w[k]);
    }
    if (format_has_high(type))
        for (int k = 0; k < 8; k++) {
            __mmask64 mask;

            memcpy(&mask, block + 8 * k, 8);
            w[k] = _mm512_mask_add_epi8(w[k], mask, w[k], _mm512_set1_epi8(16));
        }
    if (type == DTYPE_Q6_K) {
        __m512i top = _mm512_set1_epi8(48);

        for (int h = 0; h < 2; h++) {
            __m512i x = _mm512_loadu_si512(block + 64 * h);

            w[4 * h] = _mm512_or_si512(w[4 * h], _mm512_and_si512(_mm512_slli_epi16(x, 4), top));
            w[4 * h + 1] = _mm512_or_si512(w[4 * h + 1], _mm512_and_si512(_mm512_slli_epi16(x, 2), top));
            w[4 * h + 2] = _mm512_or_si512(w[4 * h + 2], _mm512_and_si512(x, top));
            w[4 * h + 3] = _mm512_or_si512(w[4 * h + 3], _mm512_and_si512(_mm512_srli_epi16(x, 2), top));
        }
    }
}

INLINE __m512i broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}

/* What one block of one group brings to all tokens. */
struct block {
    __m512i w[8];
    __m512 d, m, f0, f1;
};

INLINE void read_block(enum dtype type, const uint8_t *data, const struct head *h, int j, struct block *b)
{
    b->d = h->d;
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
        b->m = h->m;
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
        b->d = _mm512_mul_ps(h->d, byte_of(h->scales[j / 4], j & 3));
        b->m = _mm512_mul_ps(h->m, byte_of(h->mins[j / 4], j & 3));        /* subtracted below */
    }
    if (type == DTYPE_Q6_K) {
        b->f0 = signed_byte_of(h->halves[j / 2], j % 2 * 2);
        b->f1 = signed_byte_of(h->halves[j / 2], j % 2 * 2 + 1);
    }
    unpack(type, data, b->w);
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

INLINE void block_step(enum dtype type, const struct block *b, const int ng, const struct act_block *a, const int nt, __m512 acc[][2])
{
    __m512i s[4][2];
    __m512 f[4][2];

    for (int half = 0; half < (type == DTYPE_Q6_K ? 2 : 1); half++) {
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++)
                s[t][g] = _mm512_set1_epi32(type == DTYPE_Q5_0 ? 2 * a[t].m8 : type == DTYPE_IQ4_NL ? a[t].m128 :
                                            type == DTYPE_Q6_K ? -32 * (half ? a[t].sum - a[t].low : a[t].low) : 0);
        sums(b, ng, a, nt, 4 * half, type == DTYPE_Q6_K ? 4 : 8, s);
        /* Q6_K: the halves' sums and their products with the scales are integers below 2^24, which F32 holds exactly. */
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++) {
                __m512 x = _mm512_cvtepi32_ps(s[t][g]);

                f[t][g] = type != DTYPE_Q6_K ? x : half ? _mm512_fmadd_ps(x, b[g].f1, f[t][g]) : _mm512_mul_ps(x, b[g].f0);
            }
    }
    for (int t = 0; t < nt; t++) {
        __m512 d = _mm512_set1_ps(a[t].d), sum = _mm512_set1_ps((float)a[t].sum);

        for (int g = 0; g < ng; g++) {
            acc[t][g] = _mm512_fmadd_ps(f[t][g], _mm512_mul_ps(b[g].d, d), acc[t][g]);
            if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
                acc[t][g] = _mm512_fmadd_ps(sum, _mm512_mul_ps(b[g].m, d), acc[t][g]);
            if (type == DTYPE_Q4_K || type == DTYPE_Q5_K)
                acc[t][g] = _mm512_fnmadd_ps(sum, _mm512_mul_ps(b[g].m, d), acc[t][g]);
        }
    }
}

/* ng (1 or 2) groups by nt tokens; `few`: nt is a constant of at most 4, and the sums stay in registers. */
INLINE void dot_tile(enum dtype type, const uint8_t *group, const int ng, int n, const struct act_block *a, const int nt, const int few, float *out,
                     ptrdiff_t stride)
{
    const int per = format_blocks(type), head_bytes = format_head(type) * 16, block_bytes = format_block_bytes(type) * 16;
    const size_t unit_bytes = (size_t)(head_bytes + per * block_bytes), next = unit_bytes * (size_t)(n / per);
    __m512 acc[KERNEL_TILE][2], saved[2][KERNEL_TILE][2];
    struct head h[2];

    for (int quarter = 0; quarter < 4; quarter++) {
        int begin = (int)((int64_t)quarter * n / 4), end = (int)((int64_t)(quarter + 1) * n / 4), j = begin % per;
        const uint8_t *unit = group + (size_t)(begin / per) * unit_bytes;

        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++)
                acc[t][g] = _mm512_setzero_ps();
        for (int g = 0; g < ng; g++)
            read_head(type, unit + (size_t)g * next, &h[g]);
        for (int at = begin; at < end; at++, a += nt) {
            struct block b[2];
            int t = 0;

            for (int g = 0; g < ng; g++) {
                const uint8_t *data = unit + (size_t)g * next + head_bytes + j * block_bytes;

                for (int i = 0; i < block_bytes + head_bytes / per; i += 64)
                    _mm_prefetch((const char *)data + 4096 + i, _MM_HINT_T1);
                read_block(type, data, &h[g], j, &b[g]);
            }
            if (++j == per && at + 1 < end) {
                j = 0;
                unit += unit_bytes;
                for (int g = 0; g < ng; g++)
                    read_head(type, unit + (size_t)g * next, &h[g]);
            }
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
    int g = 0, n = cols / NUM_BLOCK;

    for (; g + 2 <= groups; g += 2, at += 2 * bytes) {
        switch (nt) {
        case 1: dot_tile(type, at, 2, n, panel, 1, 1, out + 16 * g, stride); break;
        case 2: dot_tile(type, at, 2, n, panel, 2, 1, out + 16 * g, stride); break;
        case 3: dot_tile(type, at, 2, n, panel, 3, 1, out + 16 * g, stride); break;
        case 4: dot_tile(type, at, 2, n, panel, 4, 1, out + 16 * g, stride); break;
        default: dot_tile(type, at, 2, n, panel, nt, 0, out + 16 * g, stride); break;
        }
    }
    if (g < groups)
        dot_tile(type, at, 1, n, panel, nt, 0, out + 16 * g, stride);
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
