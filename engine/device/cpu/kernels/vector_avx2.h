/* AVX2: the vectors of 8 lanes for the kernels written once for every set (vector.inc, unpack.inc,
 * dot.inc): vf of floats, vi of 32-bit integers or of bytes. Included by files that are compiled
 * with AVX2's flags. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_VECTOR_AVX2_H
#define ENGINE_DEVICE_CPU_KERNELS_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VL 8
#define INLINE static inline __attribute__((always_inline))

typedef __m256i vi;
typedef __m256 vf;

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
/* Pairs of neighbours: swapped; VL / 2 numbers duplicated; a * b - c, a * b + c alternating. */
static inline vf vf_swap(vf x)
{
    return _mm256_permute_ps(x, 0xb1);
}
static inline vf vf_load_twice(const float *p)
{
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
static inline vf vf_fma_pairs(vf a, vf b, vf c)
{
    return _mm256_fmaddsub_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

static inline float vf_sum(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* 2^n from the low bits of t = n + magic. */
static inline vf vf_exp_scale(vf t)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23));
}

static inline vf vf_zero_below(vf y, vf x, float limit)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_NLT_UQ), y);
}

static inline vf vf_recip_start(vf x)
{
    __m256i u = _mm256_castps_si256(x), sign = _mm256_set1_epi32((int)0x80000000u);

    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_sub_epi32(_mm256_set1_epi32(0x7ef311c7),
                                                                _mm256_andnot_si256(sign, u)),
                                               _mm256_and_si256(u, sign)));
}

static inline vf vf_from_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
/* num_from_e4m3_half: the exponent's highest bit, set by the sign, is cleared */
static inline vf vf_from_e4m3_half(const void *p)
{
    __m128i x = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);

    return _mm256_cvtph_ps(_mm_and_si128(x, _mm_set1_epi16((short)0xbfff)));
}
/* 32 of them. */
static inline void vf_from_e4m3_halves(const void *p, vf out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = vf_from_e4m3_half((const uint8_t *)p + 8 * i);
}
/* num_from_e8m0_half */
static inline vf vf_from_e8m0_half(const void *p)
{
    __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)),
            low = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e),
            normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);

    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(low, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}
static inline vf vf_from_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
static inline vf vf_from_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

/* The odd and the even ones of 16 BF16 numbers. No instruction multiplies them in pairs. */
static inline vf vf_from_odd(const void *p)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_loadu_si256(p), _mm256_set1_epi32((int)0xffff0000u)));
}
static inline vf vf_from_even(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p), 16));
}
static inline vf vf_pairs(vf w, vf x, vf sum)
{
    return sum;
}

/* Lane j += lane j + s for s = 4, 2, 1. */
static inline float vf_fold(vf x)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline float vf_largest(vf x)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

INLINE vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
INLINE vi vi_from_u16(const void *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}
INLINE vi vi_set1(int x)
{
    return _mm256_set1_epi32(x);
}
INLINE vi vi_set1_byte(int x)
{
    return _mm256_set1_epi8((char)x);
}
INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
INLINE vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}
INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
/* x, which has none of the mask's bits, with those of `bits`. */
INLINE vi vi_merge(vi x, vi bits, vi mask)
{
    return vi_or(x, vi_and(bits, mask));
}
INLINE vi vi_add_bytes(vi a, vi b)
{
    return _mm256_add_epi8(a, b);
}
/* Pairs of bytes shifted together. */
INLINE vi vi_up(vi x, int bits)
{
    return _mm256_slli_epi16(x, bits);
}
INLINE vi vi_down(vi x, int bits)
{
    return _mm256_srli_epi16(x, bits);
}
/* The same by a variable number. */
INLINE vi vi_down_by(vi x, int bits)
{
    return _mm256_srli_epi16(x, bits);
}
/* The low or the high four bits of every byte. */
INLINE vi vi_nibbles(vi x, bool high)
{
    return vi_and(high ? vi_down(x, 4) : x, vi_set1_byte(15));
}
/* Lanes shifted as words. */
INLINE vi vi_word_up(vi x, int bits)
{
    return _mm256_slli_epi32(x, bits);
}
INLINE vi vi_word_down(vi x, int bits)
{
    return _mm256_srli_epi32(x, bits);
}
INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
/* Pairs of bytes as numbers of 16 bits. */
INLINE vi vi_times16(vi a, vi b)
{
    return _mm256_mullo_epi16(a, b);
}
/* Lanes, times a constant; the sum of the bytes (of at most 63) of each. */
INLINE vi vi_times32(vi a, uint32_t by)
{
    return _mm256_mullo_epi32(a, _mm256_set1_epi32((int)by));
}
INLINE vi vi_byte_sums(vi x)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_set1_epi8(1)), _mm256_set1_epi16(1));
}
/* Of each lane bytes `from` and the next one, at its even bytes or (odd 1) its odd ones; else 0. */
INLINE vi vi_spread(vi x, const int from, const int odd)
{
    const vi lanes = _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c, 0x08080808,
                                      0x04040404, 0);
    int which = (from | 0x80 << 8 | (from + 1) << 16) | (int)(0x80u << 24);

    if (odd)
        which = 0x80 | from << 8 | 0x80 << 16 | (from + 1) << 24;
    return _mm256_shuffle_epi8(x, _mm256_or_si256(lanes, _mm256_set1_epi32(which)));
}
INLINE vi vi_set1_pair(int x)
{
    return _mm256_set1_epi16((short)x);
}
INLINE vf vi_as_vf(vi x) /* the same bits */
{
    return _mm256_castsi256_ps(x);
}
INLINE vf vi_to_vf(vi x)
{
    return _mm256_cvtepi32_ps(x);
}
/* Lanes as two numbers of 16 bits: differences; the low one of each of two; the sum of products. */
INLINE vi vi_sub16(vi a, vi b)
{
    return _mm256_sub_epi16(a, b);
}
INLINE vi vi_pair(vi low, vi high)
{
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}
INLINE vi vi_dp2(vi a, vi b)
{
    return _mm256_madd_epi16(a, b);
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

    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(
                                      _mm_loadu_si128((const void *)index[half])));
}
/* Byte j of each lane as a number, without and with a sign. */
INLINE vf vi_byte(vi x, int j)
{
    return vi_to_vf(vi_and(_mm256_srli_epi32(x, 8 * j), vi_set1(255)));
}
INLINE vf vi_signed_byte(vi x, int j)
{
    return vi_to_vf(_mm256_srai_epi32(_mm256_slli_epi32(x, 24 - 8 * j), 24));
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
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
}
INLINE vi vi_lookup(vi table, vi x)
{
    return _mm256_shuffle_epi8(table, x);
}

/* x, or 0 where b is that value. */
INLINE vi vi_unless(vi x, vi b, int value)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(b, vi_set1(value)), x);
}
/* Words of a table, one a lane. */
INLINE vi vi_gather(const uint32_t *table, vi index)
{
    return _mm256_i32gather_epi32((const int *)table, index, 4);
}
/* The low halves of the lanes are F16 numbers. */
INLINE vf vi_halves_to_vf(vi x)
{
    vi pairs = _mm256_packus_epi32(vi_and(x, vi_set1(0xffff)), _mm256_setzero_si256());

    return _mm256_cvtph_ps(
        _mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0))));
}
/* zero + x, or zero - x where bits 4 * half + i of byte l of the lane's signs is set, i being that
 * of the byte in x. */
INLINE vi vi_with_signs(vi x, vi signs, int l, int half, int zero)
{
    const vi order = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0,
                                      0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12),
             bit = vi_set1(half ? (int)0x80402010 : 0x08040201);
    vi own = _mm256_shuffle_epi8(signs, vi_add_bytes(order, vi_set1_byte(l))),
       minus = _mm256_cmpeq_epi8(vi_and(own, bit), bit);

    return _mm256_add_epi8(_mm256_sub_epi8(vi_xor(x, minus), minus), vi_set1_byte(zero));
}

#if defined(__AVXVNNI__)
/* sum + the four products of unsigned bytes w and signed bytes q in each lane. */
INLINE vi vi_dp4(vi sum, vi w, vi q)
{
    return _mm256_dpbusd_avx_epi32(sum, w, q);
}
#endif

#endif
