/* AVX-512: the vectors of 16 lanes for the kernels written once for every set (vector.inc,
 * unpack.inc, dot.inc): vf of floats, vi of 32-bit integers or of bytes. Included by files that are
 * compiled with AVX-512's flags. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_VECTOR_AVX512_H
#define ENGINE_DEVICE_CPU_KERNELS_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VL 16
#define INLINE static inline __attribute__((always_inline))

typedef __m512i vi;
typedef __m512 vf;

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* Pairs of neighbours: swapped; VL / 2 numbers duplicated; a * b - c, a * b + c alternating. */
static inline vf vf_swap(vf x)
{
    return _mm512_permute_ps(x, 0xb1);
}
static inline vf vf_load_twice(const float *p)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                 _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
static inline vf vf_fma_pairs(vf a, vf b, vf c)
{
    return _mm512_fmaddsub_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
static inline float vf_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}

/* 2^n from the low bits of t = n + magic. */
static inline vf vf_exp_scale(vf t)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23));
}

static inline vf vf_zero_below(vf y, vf x, float limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), y);
}

static inline vf vf_recip_start(vf x)
{
    __m512i u = _mm512_castps_si512(x), sign = _mm512_set1_epi32((int)0x80000000u);

    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_sub_epi32(_mm512_set1_epi32(0x7ef311c7),
                                                                _mm512_andnot_si512(sign, u)),
                                               _mm512_and_si512(u, sign)));
}

static inline vf vf_from_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
/* num_from_e4m3_half of 32 codes: the exponent's highest bit, set by the sign, is cleared */
INLINE void vf_from_e4m3_halves(const void *p, vf out[2])
{
    __m512i x = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(p)), 7);

    x = _mm512_and_si512(x, _mm512_set1_epi16((short)0xbfff));
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(x));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1));
}
/* num_from_e8m0_half */
static inline vf vf_from_e8m0_half(const void *p)
{
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(p)), one = _mm512_set1_epi32(1);
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);

    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, _mm512_cmple_epu32_mask(e, one),
                                                      _mm512_set1_epi32(0x00200000), e));
}
static inline vf vf_from_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
static inline vf vf_from_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

/* The odd and the even ones of 32 BF16 numbers; two of each pair times two, the odd ones first
 * (rule 11). */
static inline vf vf_from_odd(const void *p)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)));
}
static inline vf vf_from_even(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vf vf_pairs(vf w, vf x, vf sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}

/* Lane j += lane j + s for s = 4, 2, 1 of the eight in x. */
static inline float fold8(__m256 x)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline float vf_fold(vf x)
{
    return fold8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}

/* Folds 16 vectors, one result per lane: two vectors become one of half sums, four times. */
#define VF_QUARTERS(a, b, low, high) \
    _mm512_add_ps(_mm512_shuffle_f32x4(a, b, low), _mm512_shuffle_f32x4(a, b, high))
#define VF_PAIRS(a, b, low, high) \
    _mm512_add_ps(_mm512_shuffle_ps(a, b, low), _mm512_shuffle_ps(a, b, high))
INLINE void vf_fold16(const vf x[16], float out[16])
{
    vf m[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* vectors i, 4 + i, 8 + i, 12 + i, one per quarter */
        vf a = VF_QUARTERS(x[i], x[4 + i], 0x44, 0xee),
           b = VF_QUARTERS(x[8 + i], x[12 + i], 0x44, 0xee);

        m[i] = VF_QUARTERS(a, b, 0x88, 0xdd);
    }
    m[0] = VF_PAIRS(m[0], m[1], 0x44, 0xee);
    m[2] = VF_PAIRS(m[2], m[3], 0x44, 0xee);
    vf_store(out, VF_PAIRS(m[0], m[2], 0x88, 0xdd));
}

static inline float vf_largest(vf x)
{
    return _mm512_reduce_max_ps(x);
}

INLINE vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
INLINE vi vi_from_u16(const void *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}
INLINE vi vi_set1(int x)
{
    return _mm512_set1_epi32(x);
}
INLINE vi vi_set1_byte(int x)
{
    return _mm512_set1_epi8((char)x);
}
INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
INLINE vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
/* x, which has none of the mask's bits, with those of `bits`. */
INLINE vi vi_merge(vi x, vi bits, vi mask)
{
    return _mm512_ternarylogic_epi32(x, bits, mask, 0xf8);
}
INLINE vi vi_add_bytes(vi a, vi b)
{
    return _mm512_add_epi8(a, b);
}
/* Pairs of bytes shifted together. */
INLINE vi vi_up(vi x, int bits)
{
    return _mm512_slli_epi16(x, bits);
}
INLINE vi vi_down(vi x, int bits)
{
    return _mm512_srli_epi16(x, bits);
}
/* The same by a variable number. */
INLINE vi vi_down_by(vi x, int bits)
{
    return _mm512_srli_epi16(x, (unsigned)bits);
}
/* The low or the high four bits of every byte. */
INLINE vi vi_nibbles(vi x, bool high)
{
    return vi_and(high ? vi_down(x, 4) : x, vi_set1_byte(15));
}
/* Lanes shifted as words. */
INLINE vi vi_word_up(vi x, int bits)
{
    return _mm512_slli_epi32(x, (unsigned)bits);
}
INLINE vi vi_word_down(vi x, int bits)
{
    return _mm512_srli_epi32(x, (unsigned)bits);
}
INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
/* Pairs of bytes as numbers of 16 bits. */
INLINE vi vi_times16(vi a, vi b)
{
    return _mm512_mullo_epi16(a, b);
}
/* Lanes, times a constant; the sum of the bytes (of at most 63) of each. */
INLINE vi vi_times32(vi a, uint32_t by)
{
    return _mm512_mullo_epi32(a, _mm512_set1_epi32((int)by));
}
INLINE vi vi_byte_sums(vi x)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), x, _mm512_set1_epi8(1));
}
/* Of each lane bytes `from` and the next one, at its even bytes or (odd 1) its odd ones; else 0. */
INLINE vi vi_spread(vi x, const int from, const int odd)
{
    const vi lanes = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    int which = (from | 0x80 << 8 | (from + 1) << 16) | (int)(0x80u << 24);

    if (odd)
        which = 0x80 | from << 8 | 0x80 << 16 | (from + 1) << 24;
    return _mm512_shuffle_epi8(x, _mm512_or_si512(lanes, _mm512_set1_epi32(which)));
}
INLINE vi vi_set1_pair(int x)
{
    return _mm512_set1_epi16((short)x);
}
INLINE vf vi_as_vf(vi x) /* the same bits */
{
    return _mm512_castsi512_ps(x);
}
INLINE vf vi_to_vf(vi x)
{
    return _mm512_cvtepi32_ps(x);
}
/* Lanes as two numbers of 16 bits: differences; the low one of each of two; the sum of products. */
INLINE vi vi_sub16(vi a, vi b)
{
    return _mm512_sub_epi16(a, b);
}
INLINE vi vi_pair(vi low, vi high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}
INLINE vi vi_dp2(vi a, vi b)
{
    return _mm512_madd_epi16(a, b);
}
/* Bytes 2 * half and 2 * half + 1 of each lane as two numbers of 16 bits: one shuffle, whose other
 * bytes are zero (index bit 7). */
INLINE vi vi_byte_pair(vi x, int half)
{
    static const uint8_t index[2][16] = {
#define LANES(j) \
    {j, 128, j + 1, 128, j + 4, 128, j + 5, 128, j + 8, 128, j + 9, 128, j + 12, 128, j + 13, 128}
        LANES(0), LANES(2)
#undef LANES
    };

    return _mm512_shuffle_epi8(x,
                               _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)index[half])));
}
/* Byte j of each lane as a number: one shuffle whose other bytes are zero (index bit 7). */
INLINE vf vi_byte(vi x, int j)
{
    static const uint8_t index[4][16] = {
#define LANES(j) \
    {j, 128, 128, 128, j + 4, 128, 128, 128, j + 8, 128, 128, 128, j + 12, 128, 128, 128}
        LANES(0), LANES(1), LANES(2), LANES(3)
#undef LANES
    };

    return vi_to_vf(
        _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)index[j]))));
}
/* The same with a sign. */
INLINE vf vi_signed_byte(vi x, int j)
{
    return vi_to_vf(_mm512_srai_epi32(_mm512_slli_epi32(x, (unsigned)(24 - 8 * j)), 24));
}

/* Four bytes broadcast to every lane. */
INLINE vi vi_broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return vi_set1(x);
}

/* Sixteen bytes as a table; every byte of x, below 16, becomes its entry. */
INLINE vi vi_table(const int8_t *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
}
INLINE vi vi_lookup(vi table, vi x)
{
    return _mm512_shuffle_epi8(table, x);
}

/* x, or 0 where b is that value. */
INLINE vi vi_unless(vi x, vi b, int value)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(b, vi_set1(value)), x);
}
/* Words of a table, one per lane. */
INLINE vi vi_gather(const uint32_t *table, vi index)
{
    return _mm512_i32gather_epi32(index, table, 4);
}
/* The low halves of the lanes are F16 numbers. */
INLINE vf vi_halves_to_vf(vi x)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}
/* zero + x, or zero - x where bits 4 * half + i of byte l of the lane's signs is set, i being that
 * of the byte in x. */
INLINE vi vi_with_signs(vi x, vi signs, int l, int half, int zero)
{
    const vi order = _mm512_broadcast_i32x4(
                 _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)),
             bit = vi_set1(half ? (int)0x80402010 : 0x08040201);
    vi own = _mm512_shuffle_epi8(signs, vi_add_bytes(order, vi_set1_byte(l)));
    vi z = vi_set1_byte(zero);

    return _mm512_mask_sub_epi8(vi_add_bytes(z, x), _mm512_test_epi8_mask(own, bit), z, x);
}

/* sum + the four products of unsigned bytes w and signed bytes q in each lane. */
INLINE vi vi_dp4(vi sum, vi w, vi q)
{
    return _mm512_dpbusd_epi32(sum, w, q);
}

#endif
