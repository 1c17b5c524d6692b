/* AVX-512 products with rows as in the file: the weights of a model that was just opened are
 * multiplied in the mapped file. Sixteen rows are read in parallel and transposed in registers into
 * the words of the packed layout, so the sums, and the bits, are those of kernels_avx512.c; for a
 * few tokens reading from memory takes as long. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"

/* 16 bytes of rows i, i+4, i+8, i+12 in the four lanes. */
INLINE __m512i four_rows(const uint8_t *p, size_t row)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));

    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(p + 4 * row)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(p + 8 * row)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(p + 12 * row)), 3);
}

/* Words 0..3 of 16 bytes of each row, one row a lane. */
INLINE void transpose4x4(const uint8_t *p, size_t row, __m512i w[4])
{
    __m512i a = four_rows(p, row), b = four_rows(p + row, row), c = four_rows(p + 2 * row, row),
            d = four_rows(p + 3 * row, row);
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d),
            ab2 = _mm512_unpackhi_epi32(a, b), cd2 = _mm512_unpackhi_epi32(c, d);

    w[0] = _mm512_unpacklo_epi64(ab, cd);
    w[1] = _mm512_unpackhi_epi64(ab, cd);
    w[2] = _mm512_unpacklo_epi64(ab2, cd2);
    w[3] = _mm512_unpackhi_epi64(ab2, cd2);
}

/* The eight weight words of one block, as unsigned bytes. */
INLINE void unpack_rows(enum dtype type, const uint8_t *payload, size_t row, __m512i w[8])
{
    transpose4x4(payload, row, w);
    if (format_of[type].bits == 8) {
        __m512i flip = _mm512_set1_epi8((char)0x80);

        transpose4x4(payload + 16, row, w + 4);
        for (int k = 0; k < 8; k++)
            w[k] = _mm512_xor_si512(w[k], flip);
    } else {
        __m512i nibble = _mm512_set1_epi8(15);

        for (int k = 0; k < 4; k++) {
            w[4 + k] = _mm512_and_si512(_mm512_srli_epi16(w[k], 4), nibble);
            w[k] = _mm512_and_si512(w[k], nibble);
        }
    }
}

/* 16 rows, nt (a constant) of the panel's tokens. */
INLINE void rows16(enum dtype type, const uint8_t *rows, int n, const struct act_block *a,
                   const int nt, int panel, float *out, ptrdiff_t stride)
{
    const size_t block = (size_t)format_superblock(type), row = block * (size_t)n;
    const __m512i at = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                                            12, 13, 14, 15),
                                          _mm512_set1_epi32((int)row));
    const char *ahead = (const char *)rows + 16 * row;
    __m512 acc[4], saved[4][2];

    for (int quarter = 0; quarter < 4; quarter++) {
        int end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int t = 0; t < nt; t++)
            acc[t] = _mm512_setzero_ps();
        for (int b = (int)((int64_t)quarter * n / 4); b < end;
             b++, rows += block, a += panel, ahead += 16 * block) {
            __m512 dw = _mm512_cvtph_ps(
                _mm512_cvtepi32_epi16(_mm512_i32gather_epi32(at, (const void *)rows, 1)));
            __m512i w[8], s[4];

            /* Sixteen rows are too many streams for the hardware; the next sixteen are prefetched
             * in their order in memory. */
            for (size_t i = 0; i < 16 * block; i += 64)
                _mm_prefetch(ahead + i, _MM_HINT_T1);
            unpack_rows(type, rows + 2, row, w);
            for (int t = 0; t < nt; t++)
                s[t] = _mm512_set1_epi32(format_sum_start(type, &a[t]));
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++)
                for (int t = 0; t < nt; t++)
                    s[t] = _mm512_dpbusd_epi32(s[t], w[k], vi_broadcast(a[t].q + 4 * k));
            for (int t = 0; t < nt; t++)
                acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[t]),
                                         _mm512_mul_ps(dw, _mm512_set1_ps(a[t].d)), acc[t]);
        }
        for (int t = 0; t < nt; t++)
            keep_quarter(quarter, acc[t], saved[t], out + t * stride);
    }
}

INLINE void raw_any(enum dtype type, const uint8_t *rows, int groups, int cols,
                    const struct act_block *panel, int nt, float *out, ptrdiff_t stride)
{
    int n = cols / NUM_BLOCK;

    for (int g = 0; g < groups; g++, rows += 16 * dtype_row_bytes(type, cols), out += 16)
        for (int t = 0; t < nt; t += 4)
            switch (nt - t) {
            case 1: rows16(type, rows, n, panel + t, 1, nt, out + t * stride, stride); break;
            case 2: rows16(type, rows, n, panel + t, 2, nt, out + t * stride, stride); break;
            case 3: rows16(type, rows, n, panel + t, 3, nt, out + t * stride, stride); break;
            default: rows16(type, rows, n, panel + t, 4, nt, out + t * stride, stride); break;
            }
}

void raw_dot_q8_0_avx512(const void *rows, int groups, int cols, const struct act_block *panel,
                         int nt, float *out, ptrdiff_t out_stride)
{
    raw_any(DTYPE_Q8_0, rows, groups, cols, panel, nt, out, out_stride);
}

void raw_dot_q4_0_avx512(const void *rows, int groups, int cols, const struct act_block *panel,
                         int nt, float *out, ptrdiff_t out_stride)
{
    raw_any(DTYPE_Q4_0, rows, groups, cols, panel, nt, out, out_stride);
}
#endif
