/* AMX kernels (tile and int8): the AVX-512 set with the matrix unit for panels of several tokens. Integer sums are exact in any order, so the
 * bits are those of every other set. Compiled with AVX-512's flags; called only where select.c found the unit and got leave to use it.
 *
 * A few blocks of two row groups are unpacked to signed bytes at a time, for all tokens. Then, up to 12 tokens at a time
 * (24 float sums fit the vector registers), the unit multiplies one block of 32 columns while the vector unit scales and adds the one before. */
#include "engine/device/cpu/kernels.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define TOKENS_LEAST 9          /* with fewer the vector kernels win */
#define TOKENS_MOST 12
#define PIECE 8                 /* blocks unpacked at a time: they stay in the first-level cache */

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Some blocks of two row groups. */
struct piece {
    _Alignas(64) int8_t weights[PIECE][2][512];
    _Alignas(64) float scales[PIECE][2][16];
};

/* Tiles 0, 1: sums (tokens x 16 rows); 4: activations (tokens x 32 bytes); 5, 6: weights (8 words x 16 rows). */
static void configure(int tokens)
{
    struct tile_config c = {.palette = 1};

    c.rows[0] = c.rows[1] = c.rows[4] = (uint8_t)tokens;
    c.rows[5] = c.rows[6] = 8;
    c.row_bytes[0] = c.row_bytes[1] = c.row_bytes[5] = c.row_bytes[6] = 64;
    c.row_bytes[4] = 32;
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

INLINE void unpack(enum dtype type, const uint8_t *payload, int8_t *out)
{
    __m512i nibble = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), flip = _mm512_set1_epi8((char)0x80);

    if (type == DTYPE_Q8_0) {
        for (int k = 0; k < 8; k++)
            _mm512_store_si512(out + 64 * k, _mm512_xor_si512(_mm512_loadu_si512(payload + 64 * k), flip));
        return;
    }
    for (int k = 0; k < 4; k++) {
        __m512i x = _mm512_loadu_si512(payload + 64 * k);

        _mm512_store_si512(out + 64 * k, _mm512_sub_epi8(_mm512_and_si512(x, nibble), eight));
        _mm512_store_si512(out + 64 * (4 + k), _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(x, 4), nibble), eight));
    }
}

/* Block sums of m tokens into float accumulators. */
INLINE void scale_and_add(const int32_t sums[2][TOKENS_MOST * 16], const float scales[2][16], const struct act_block *a, const int m, __m512 acc[][2])
{
    __m512 dw0 = _mm512_load_ps(scales[0]), dw1 = _mm512_load_ps(scales[1]);

#pragma GCC unroll 12
    for (int t = 0; t < m; t++) {
        __m512 d = _mm512_set1_ps(a[t].d);

        acc[t][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[0] + 16 * t)), _mm512_mul_ps(dw0, d), acc[t][0]);
        acc[t][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[1] + 16 * t)), _mm512_mul_ps(dw1, d), acc[t][1]);
    }
}

/* m tokens (a constant) from a on, one piece, added to out[token][group]. */
INLINE void piece_tokens(const struct piece *w, int blocks, const struct act_block *a, int nt, const int m, __m512 out[][2])
{
    _Alignas(64) int32_t sums[2][2][TOKENS_MOST * 16];
    __m512 acc[TOKENS_MOST][2];

#pragma GCC unroll 12
    for (int t = 0; t < m; t++)
        acc[t][0] = out[t][0], acc[t][1] = out[t][1];
    for (int b = 0; b < blocks; b++, a += nt) {
        __asm__ volatile("tilezero %%tmm0\n\t"
                         "tilezero %%tmm1\n\t"
                         "tileloadd (%0,%1,1), %%tmm4\n\t"
                         "tileloadd (%2,%4,1), %%tmm5\n\t"
                         "tileloadd (%3,%4,1), %%tmm6\n\t"
                         "tdpbssd %%tmm5, %%tmm4, %%tmm0\n\t"
                         "tdpbssd %%tmm6, %%tmm4, %%tmm1\n\t"
                         "tilestored %%tmm0, (%5,%4,1)\n\t"
                         "tilestored %%tmm1, (%6,%4,1)\n\t"
                         :
                         : "r"(a->q), "r"((long)sizeof *a), "r"(w->weights[b][0]), "r"(w->weights[b][1]), "r"(64L), "r"(sums[b & 1][0]), "r"(sums[b & 1][1])
                         : "memory");
        if (b > 0)
            scale_and_add(sums[(b - 1) & 1], w->scales[b - 1], a - nt, m, acc);
    }
    if (blocks > 0)
        scale_and_add(sums[(blocks - 1) & 1], w->scales[blocks - 1], a - nt, m, acc);
#pragma GCC unroll 12
    for (int t = 0; t < m; t++) {
        out[t][0] = acc[t][0];
        out[t][1] = acc[t][1];
    }
}

static void piece_any(const struct piece *w, int blocks, const struct act_block *a, int nt, int m, __m512 out[][2])
{
    switch (m) {                /* 9 tokens and more come in sets of 7 to 12 */
    case 7: piece_tokens(w, blocks, a, nt, 7, out); break;
    case 8: piece_tokens(w, blocks, a, nt, 8, out); break;
    case 9: piece_tokens(w, blocks, a, nt, 9, out); break;
    case 10: piece_tokens(w, blocks, a, nt, 10, out); break;
    case 11: piece_tokens(w, blocks, a, nt, 11, out); break;
    case 12: piece_tokens(w, blocks, a, nt, 12, out); break;
    }
}

/* Two row groups. Tokens are cut into equal sets of m; the last one is short, when they do not come out even, by reaching back over tokens of
 * the one before: those sums go to a place of their own and are thrown away. */
INLINE void dot_pair(enum dtype type, const uint8_t *group, int n, const struct act_block *panel, int nt, float *out, ptrdiff_t stride)
{
    const size_t bytes = (size_t)(type == DTYPE_Q8_0 ? 34 : 18) * 16, next = bytes * (size_t)n;
    int sets = (nt + TOKENS_MOST - 1) / TOKENS_MOST, m = (nt + sets - 1) / sets, back = sets * m - nt;
    __m512 part[4][KERNEL_TILE + TOKENS_MOST][2];
    struct piece w;

    configure(m);
    for (int q = 0; q < 4; q++) {
        int begin = (int)((int64_t)q * n / 4), end = (int)((int64_t)(q + 1) * n / 4);

        for (int t = 0; t < sets * m; t++)
            part[q][t][0] = part[q][t][1] = _mm512_setzero_ps();
        for (int b0 = begin; b0 < end; b0 += PIECE) {
            int blocks = end - b0 < PIECE ? end - b0 : PIECE;

            for (int b = 0; b < blocks; b++)
                for (int g = 0; g < 2; g++) {
                    const uint8_t *at = group + (size_t)(b0 + b) * bytes + (size_t)g * next;

                    for (size_t i = 0; i < bytes; i += 64)
                        _mm_prefetch((const char *)at + 4096 + i, _MM_HINT_T1);
                    _mm512_store_ps(w.scales[b][g], _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at)));
                    unpack(type, at + 32, w.weights[b][g]);
                }
            for (int s = 0; s < sets; s++)
                piece_any(&w, blocks, panel + (ptrdiff_t)b0 * nt + (s < sets - 1 ? s * m : nt - m), nt, m, part[q] + s * m);
        }
    }
    __asm__ volatile("tilerelease");
    for (int t = 0; t < nt; t++)
        for (int g = 0; g < 2; g++) {
            int i = t < (sets - 1) * m ? t : t + back;

            _mm512_storeu_ps(out + t * stride + 16 * g,
                             _mm512_add_ps(_mm512_add_ps(part[0][i][g], part[1][i][g]), _mm512_add_ps(part[2][i][g], part[3][i][g])));
        }
}

INLINE void dot_any(enum dtype type, const void *weights, int groups, int width, int cols, const struct act_block *panel, int nt, float *out,
                    ptrdiff_t out_stride)
{
    size_t pair = dtype_row_bytes(type, cols) * 32;
    const uint8_t *at = weights;
    int n = cols / NUM_BLOCK;

    if (nt >= TOKENS_LEAST && width == 16)
        for (; groups >= 2; groups -= 2, at += pair, out += 32)
            dot_pair(type, at, n, panel, nt, out, out_stride);
    if (groups > 0)
        kernels_avx512.dot[type](at, groups, width, cols, panel, nt, out, out_stride);
}

void amx_dot_q8_0(const void *weights, int groups, int width, int cols, const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    dot_any(DTYPE_Q8_0, weights, groups, width, cols, panel, nt, out, out_stride);
}

void amx_dot_q4_0(const void *weights, int groups, int width, int cols, const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    dot_any(DTYPE_Q4_0, weights, groups, width, cols, panel, nt, out, out_stride);
}
#endif
