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

/* Byte j of each lane as a number. */
INLINE __m512 byte_of(__m512i x, int j)
{
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srl_epi32(x, _mm_cvtsi32_si128(8 * j)), _mm512_set1_epi32(255)));
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

INLINE __m512 block_sum(enum dtype type, const __m512i w[8], const struct act_block *a, __m512 f0, __m512 f1)
{
    __m512i s;

    if (type == DTYPE_Q6_K) {       /* both sums and their products with the scales are integers below 2^24: F32 holds them exactly */
        __m512i s0 = _mm512_set1_epi32(-32 * a->low), s1 = _mm512_set1_epi32(-32 * (a->sum - a->low));

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            s0 = _mm512_dpbusd_epi32(s0, w[k], broadcast(a->q + 4 * k));
            s1 = _mm512_dpbusd_epi32(s1, w[4 + k], broadcast(a->q + 16 + 4 * k));
        }
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(s1), f1, _mm512_mul_ps(_mm512_cvtepi32_ps(s0), f0));
    }
    s = type == DTYPE_Q5_0 ? _mm512_set1_epi32(2 * a->m8) : type == DTYPE_IQ4_NL ? _mm512_set1_epi32(a->m128) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        s = _mm512_dpbusd_epi32(s, w[k], broadcast(a->q + 4 * k));
    return _mm512_cvtepi32_ps(s);
}

INLINE void dot_tile(enum dtype type, const uint8_t *group, int n, const struct act_block *a, const int nt, float *out, ptrdiff_t stride)
{
    const int per = format_blocks(type), head_bytes = format_head(type) * 16, block_bytes = format_block_bytes(type) * 16;
    __m512 acc[KERNEL_TILE], saved[2][KERNEL_TILE];
    struct head h = {.d = _mm512_setzero_ps(), .m = _mm512_setzero_ps()};

    for (int quarter = 0; quarter < 4; quarter++) {
        int begin = (int)((int64_t)quarter * n / 4), end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int t = 0; t < nt; t++)
            acc[t] = _mm512_setzero_ps();
        for (int b = begin; b < end; b++, a += nt) {
            int j = b % per;
            const uint8_t *unit = group + (size_t)(b / per) * (size_t)(head_bytes + per * block_bytes), *block = unit + head_bytes + j * block_bytes;
            __m512 dw, m = _mm512_setzero_ps(), f0 = m, f1 = m;
            __m512i w[8];

            if (per == 1 || j == 0 || b == begin)
                read_head(type, unit, &h);
            dw = h.d;
            if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
                m = h.m;
            if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
                dw = _mm512_mul_ps(h.d, byte_of(h.scales[j / 4], j & 3));
                m = _mm512_xor_ps(_mm512_mul_ps(h.m, byte_of(h.mins[j / 4], j & 3)), _mm512_set1_ps(-0.0f));
            }
            if (type == DTYPE_Q6_K) {
                f0 = signed_byte_of(h.halves[j / 2], j % 2 * 2);
                f1 = signed_byte_of(h.halves[j / 2], j % 2 * 2 + 1);
            }
            if (nt <= 2)
                for (int i = 0; i < block_bytes; i += 64)
                    _mm_prefetch((const char *)block + 4096 + i, _MM_HINT_T1);
            unpack(type, block, w);
#pragma GCC unroll 12
            for (int t = 0; t < nt; t++) {
                __m512 da = _mm512_set1_ps(a[t].d);

                acc[t] = _mm512_fmadd_ps(block_sum(type, w, a + t, f0, f1), _mm512_mul_ps(dw, da), acc[t]);
                if (format_has_min(type))
                    acc[t] = _mm512_fmadd_ps(_mm512_set1_ps((float)a[t].sum), _mm512_mul_ps(m, da), acc[t]);
            }
        }
        for (int t = 0; t < nt; t++) {
            if (quarter == 0 || quarter == 2)
                saved[quarter / 2][t] = acc[t];
            else if (quarter == 1)
                saved[0][t] = _mm512_add_ps(saved[0][t], acc[t]);
            else
                _mm512_storeu_ps(out + t * stride, _mm512_add_ps(saved[0][t], _mm512_add_ps(saved[1][t], acc[t])));
        }
    }
}

#define X(type, name, blocks, head, bytes) \
    void format_##name##_avx512(const void *weights, int groups, int width, int cols, const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride) \
    { \
        const uint8_t *group = weights; \
        int n = cols / NUM_BLOCK; \
\
        if (width != 16) { \
            format_##name##_avx2(weights, groups, width, cols, panel, nt, out, out_stride); \
            return; \
        } \
        for (int g = 0; g < groups; g++, group += dtype_row_bytes(type, cols) * 16, out += 16) \
            switch (nt) { \
            case 1: dot_tile(type, group, n, panel, 1, out, out_stride); break; \
            case 2: dot_tile(type, group, n, panel, 2, out, out_stride); break; \
            case 3: dot_tile(type, group, n, panel, 3, out, out_stride); break; \
            default: dot_tile(type, group, n, panel, nt, out, out_stride); break; \
            } \
    }
FORMATS(X)
#undef X
#endif
