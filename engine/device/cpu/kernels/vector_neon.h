/* NEON: the vectors of 8 lanes for the kernels written once for every set (vector.inc, unpack.inc,
 * dot.inc), two registers each: vf of floats, vi of 32-bit integers or of bytes. Included by files
 * that are compiled for 64-bit Arm; what the sets dotprod and i8mm have beyond NEON is chosen by
 * their flags. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_VECTOR_NEON_H
#define ENGINE_DEVICE_CPU_KERNELS_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VL 8
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int32x4_t a, b; /* lanes 0 .. 3, 4 .. 7 */
} vi;
typedef struct {
    float32x4_t a, b;
} vf;

/* The same for both registers. */
#define NEON_ONE(type, fn, x) ((type){fn((x).a), fn((x).b)})
#define NEON_TWO(type, fn, x, y) ((type){fn((x).a, (y).a), fn((x).b, (y).b)})

INLINE vf vf_load(const float *p)
{
    return (vf){vld1q_f32(p), vld1q_f32(p + 4)};
}
INLINE void vf_store(float *p, vf x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
}
INLINE vf vf_set1(float x)
{
    return (vf){vdupq_n_f32(x), vdupq_n_f32(x)};
}
INLINE vf vf_add(vf a, vf b)
{
    return NEON_TWO(vf, vaddq_f32, a, b);
}
INLINE vf vf_sub(vf a, vf b)
{
    return NEON_TWO(vf, vsubq_f32, a, b);
}
INLINE vf vf_mul(vf a, vf b)
{
    return NEON_TWO(vf, vmulq_f32, a, b);
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf){vfmaq_f32(c.a, a.a, b.a), vfmaq_f32(c.b, a.b, b.b)};
}
INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return (vf){vfmsq_f32(c.a, a.a, b.a), vfmsq_f32(c.b, a.b, b.b)};
}
INLINE vf vf_neg(vf a)
{
    return NEON_ONE(vf, vnegq_f32, a);
}
/* Pairs of neighbours: swapped; VL / 2 numbers duplicated; a * b - c, a * b + c alternating. */
INLINE vf vf_swap(vf x)
{
    return NEON_ONE(vf, vrev64q_f32, x);
}
INLINE vf vf_load_twice(const float *p)
{
    float32x4_t x = vld1q_f32(p);

    return (vf){vzip1q_f32(x, x), vzip2q_f32(x, x)};
}
INLINE vf vf_fma_pairs(vf a, vf b, vf c)
{
    const uint32x4_t sign = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));

    c.a = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(c.a), sign));
    c.b = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(c.b), sign));
    return vf_fma(a, b, c);
}
/* b if a is NaN, which FMAX and FMAXNM do not give. */
INLINE vf vf_max(vf a, vf b)
{
    return (vf){vbslq_f32(vcgtq_f32(a.a, b.a), a.a, b.a), vbslq_f32(vcgtq_f32(a.b, b.b), a.b, b.b)};
}
INLINE vf vf_min(vf a, vf b)
{
    return (vf){vbslq_f32(vcltq_f32(a.a, b.a), a.a, b.a), vbslq_f32(vcltq_f32(a.b, b.b), a.b, b.b)};
}

INLINE vi vf_as_vi(vf x) /* the same bits */
{
    return NEON_ONE(vi, vreinterpretq_s32_f32, x);
}
INLINE vf vi_as_vf(vi x)
{
    return NEON_ONE(vf, vreinterpretq_f32_s32, x);
}
INLINE vf vi_to_vf(vi x)
{
    return NEON_ONE(vf, vcvtq_f32_s32, x);
}
INLINE vi vi_set1(int x)
{
    return (vi){vdupq_n_s32(x), vdupq_n_s32(x)};
}
INLINE vi vi_add(vi a, vi b)
{
    return NEON_TWO(vi, vaddq_s32, a, b);
}
INLINE vi vi_sub(vi a, vi b)
{
    return NEON_TWO(vi, vsubq_s32, a, b);
}
INLINE vi vi_and(vi a, vi b)
{
    return NEON_TWO(vi, vandq_s32, a, b);
}
INLINE vi vi_or(vi a, vi b)
{
    return NEON_TWO(vi, vorrq_s32, a, b);
}
INLINE vi vi_xor(vi a, vi b)
{
    return NEON_TWO(vi, veorq_s32, a, b);
}
/* Lanes shifted as words. */
INLINE vi vi_word_up(vi x, int bits)
{
    return (vi){x.a << bits, x.b << bits};
}
INLINE vi vi_word_down(vi x, int bits)
{
    return (vi){(int32x4_t)((uint32x4_t)x.a >> bits), (int32x4_t)((uint32x4_t)x.b >> bits)};
}

/* Lane j += lane j + s for s = 4, 2, 1. */
INLINE float vf_fold(vf x)
{
    float32x4_t s = vaddq_f32(x.a, x.b);

    return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}
INLINE float vf_sum(vf x)
{
    return vf_fold(x);
}
/* None of them is NaN. */
INLINE float vf_largest(vf x)
{
    return vmaxvq_f32(vmaxq_f32(x.a, x.b));
}

/* 2^n from the low bits of t = n + magic. */
INLINE vf vf_exp_scale(vf t)
{
    return vi_as_vf(vi_word_up(vi_add(vf_as_vi(t), vi_set1(127)), 23));
}
INLINE vf vf_zero_below(vf y, vf x, float limit)
{
    const float32x4_t l = vdupq_n_f32(limit);
    vi u = vf_as_vi(y);

    return vi_as_vf((vi){vbicq_s32(u.a, vreinterpretq_s32_u32(vcltq_f32(x.a, l))),
                         vbicq_s32(u.b, vreinterpretq_s32_u32(vcltq_f32(x.b, l)))});
}
INLINE vf vf_recip_start(vf x)
{
    const vi sign = vi_set1(INT32_MIN), rest = vi_set1(INT32_MAX), magic = vi_set1(0x7ef311c7);
    vi u = vf_as_vi(x);

    return vi_as_vf(vi_or(vi_sub(magic, vi_and(u, rest)), vi_and(u, sign)));
}

INLINE vf vf_from_8_halves(uint16x8_t h)
{
    float16x8_t x = vreinterpretq_f16_u16(h);

    return (vf){vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
}
INLINE vf vf_from_f16(const void *p)
{
    return vf_from_8_halves(vreinterpretq_u16_u8(vld1q_u8(p)));
}
/* num_from_e4m3_half: the exponent's highest bit, set by the sign, is cleared */
INLINE vf vf_from_8_codes(int8x8_t codes)
{
    return vf_from_8_halves(
        vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(codes, 7)), vdupq_n_u16(0xbfff)));
}
INLINE vf vf_from_e4m3_half(const void *p)
{
    return vf_from_8_codes(vld1_s8(p));
}
/* 32 of them. */
INLINE void vf_from_e4m3_halves(const void *p, vf out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = vf_from_e4m3_half((const uint8_t *)p + 8 * i);
}
INLINE vi vi_from_8_u16(uint16x8_t x)
{
    return (vi){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(x))),
                vreinterpretq_s32_u32(vmovl_high_u16(x))};
}
INLINE vi vi_from_u16(const void *p)
{
    return vi_from_8_u16(vreinterpretq_u16_u8(vld1q_u8(p)));
}
/* num_from_e8m0_half */
INLINE float32x4_t neon_e8m0(int32x4_t e)
{
    uint32x4_t low = vshlq_u32(vdupq_n_u32(0x00200000), e),
               normal = vreinterpretq_u32_s32((e - 1) << 23);

    return vreinterpretq_f32_u32(vbslq_u32(vcgtq_s32(e, vdupq_n_s32(1)), normal, low));
}
INLINE vf vf_from_e8m0_half(const void *p)
{
    vi e = vi_from_8_u16(vmovl_u8(vld1_u8(p)));

    return NEON_ONE(vf, neon_e8m0, e);
}
INLINE vf vf_from_i8(const void *p)
{
    int16x8_t x = vmovl_s8(vld1_s8(p));

    return vi_to_vf((vi){vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)});
}
INLINE vf vf_from_bf16(const void *p)
{
    uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(p));

    return (vf){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}

INLINE vi vi_load(const void *p)
{
    const uint8_t *at = p;

    return (vi){vreinterpretq_s32_u8(vld1q_u8(at)), vreinterpretq_s32_u8(vld1q_u8(at + 16))};
}
/* The odd and the even ones of 16 BF16 numbers, and the products of such pairs, the odd ones first:
 * each multiplication and addition is rounded once. */
INLINE vf vf_from_odd(const void *p)
{
    return vi_as_vf(vi_and(vi_load(p), vi_set1((int)0xffff0000u)));
}
INLINE vf vf_from_even(const void *p)
{
    return vi_as_vf(vi_word_up(vi_load(p), 16));
}
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
INLINE float32x4_t neon_pairs(float32x4_t w, float32x4_t x, float32x4_t sum)
{
    const bfloat16x8_t u = vreinterpretq_bf16_f32(w), v = vreinterpretq_bf16_f32(x);

    return vbfmlalbq_f32(vbfmlaltq_f32(sum, u, v), u, v);
}
INLINE vf vf_pairs(vf w, vf x, vf sum)
{
    return (vf){neon_pairs(w.a, x.a, sum.a), neon_pairs(w.b, x.b, sum.b)};
}
#else
INLINE vf vf_pairs(vf w, vf x, vf sum)
{
    return sum;
}
#endif

/* ---- bytes ---- */

INLINE uint8x16_t neon_bytes(int32x4_t x)
{
    return vreinterpretq_u8_s32(x);
}
INLINE int32x4_t neon_words(uint8x16_t x)
{
    return vreinterpretq_s32_u8(x);
}
INLINE vi vi_set1_byte(int x)
{
    const int32x4_t v = neon_words(vdupq_n_u8((uint8_t)x));

    return (vi){v, v};
}
INLINE vi vi_set1_pair(int x)
{
    const int32x4_t v = vreinterpretq_s32_s16(vdupq_n_s16((short)x));

    return (vi){v, v};
}
/* x, which has none of the mask's bits, with those of `bits`. */
INLINE vi vi_merge(vi x, vi bits, vi mask)
{
    return (vi){vbslq_s32((uint32x4_t)mask.a, bits.a, x.a),
                vbslq_s32((uint32x4_t)mask.b, bits.b, x.b)};
}
INLINE vi vi_add_bytes(vi a, vi b)
{
    return (vi){(int32x4_t)((uint8x16_t)a.a + (uint8x16_t)b.a),
                (int32x4_t)((uint8x16_t)a.b + (uint8x16_t)b.b)};
}
/* Pairs of bytes shifted together; the same by a variable number. */
INLINE vi vi_up(vi x, int bits)
{
    return (vi){(int32x4_t)((uint16x8_t)x.a << bits), (int32x4_t)((uint16x8_t)x.b << bits)};
}
INLINE vi vi_down(vi x, int bits)
{
    return (vi){(int32x4_t)((uint16x8_t)x.a >> bits), (int32x4_t)((uint16x8_t)x.b >> bits)};
}
INLINE vi vi_down_by(vi x, int bits)
{
    return vi_down(x, bits);
}
/* The low or the high four bits of every byte. */
INLINE vi vi_nibbles(vi x, bool high)
{
    if (high)
        return (vi){(int32x4_t)((uint8x16_t)x.a >> 4), (int32x4_t)((uint8x16_t)x.b >> 4)};
    return vi_and(x, vi_set1_byte(15));
}
/* Pairs of bytes as numbers of 16 bits. */
INLINE vi vi_times16(vi a, vi b)
{
    return (vi){(int32x4_t)((uint16x8_t)a.a * (uint16x8_t)b.a),
                (int32x4_t)((uint16x8_t)a.b * (uint16x8_t)b.b)};
}
/* Lanes, times a constant; the sum of the bytes (of at most 63) of each. */
INLINE vi vi_times32(vi a, uint32_t by)
{
    return (vi){vreinterpretq_s32_u32(vmulq_n_u32(vreinterpretq_u32_s32(a.a), by)),
                vreinterpretq_s32_u32(vmulq_n_u32(vreinterpretq_u32_s32(a.b), by))};
}
INLINE vi vi_byte_sums(vi x)
{
    return (vi){vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_s32(x.a)))),
                vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_s32(x.b))))};
}
/* Of each lane bytes `from` and the next one, at its even bytes or (odd 1) its odd ones; else 0. */
INLINE int32x4_t neon_spread(int32x4_t x, const int from, const int odd)
{
    uint32x4_t a = vandq_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-8 * from)),
                             vdupq_n_u32(0xffff));

    a = vandq_u32(vorrq_u32(a, vshlq_n_u32(a, 8)), vdupq_n_u32(0xff00ff));
    return vreinterpretq_s32_u32(odd ? vshlq_n_u32(a, 8) : a);
}
INLINE vi vi_spread(vi x, const int from, const int odd)
{
    return (vi){neon_spread(x.a, from, odd), neon_spread(x.b, from, odd)};
}
/* Lanes as two numbers of 16 bits: differences; the low one of each of two; the sum of products. */
INLINE vi vi_sub16(vi a, vi b)
{
    return (vi){(int32x4_t)((uint16x8_t)a.a - (uint16x8_t)b.a),
                (int32x4_t)((uint16x8_t)a.b - (uint16x8_t)b.b)};
}
INLINE vi vi_pair(vi low, vi high)
{
    return (vi){vsliq_n_s32(low.a, high.a, 16), vsliq_n_s32(low.b, high.b, 16)};
}
INLINE int32x4_t neon_dp2(int32x4_t x, int32x4_t y)
{
    int16x8_t a = vreinterpretq_s16_s32(x), b = vreinterpretq_s16_s32(y);

    return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
}
INLINE vi vi_dp2(vi a, vi b)
{
    return NEON_TWO(vi, neon_dp2, a, b);
}
/* Sixteen bytes as a table; every byte of x, below 16, becomes its entry. */
INLINE vi vi_table(const int8_t *p)
{
    const int32x4_t t = vreinterpretq_s32_s8(vld1q_s8(p));

    return (vi){t, t};
}
INLINE int32x4_t neon_lookup(int32x4_t table, int32x4_t x)
{
    return neon_words(vqtbl1q_u8(neon_bytes(table), neon_bytes(x)));
}
INLINE vi vi_lookup(vi table, vi x)
{
    return NEON_TWO(vi, neon_lookup, table, x);
}
/* Bytes 2 * half and 2 * half + 1 of each lane as two numbers of 16 bits: one look-up, whose other
 * bytes are zero (an index beyond 15). */
INLINE vi vi_byte_pair(vi x, int half)
{
    static const int8_t index[2][16] = {
#define LANES(j) \
    {j, -1, j + 1, -1, j + 4, -1, j + 5, -1, j + 8, -1, j + 9, -1, j + 12, -1, j + 13, -1}
        LANES(0), LANES(2)
#undef LANES
    };

    return vi_lookup(x, vi_table(index[half]));
}
/* Byte j of each lane as a number, without and with a sign. */
INLINE vf vi_byte(vi x, int j)
{
    x = vi_word_down(x, 8 * j);
    return vi_to_vf(j == 3 ? x : vi_and(x, vi_set1(255)));
}
INLINE vf vi_signed_byte(vi x, int j)
{
    x = vi_word_up(x, 24 - 8 * j);
    return vi_to_vf((vi){x.a >> 24, x.b >> 24});
}
/* Four bytes broadcast to every lane. */
INLINE vi vi_broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return vi_set1(x);
}
/* x, or 0 where b is that value. */
INLINE vi vi_unless(vi x, vi b, int value)
{
    const int32x4_t v = vdupq_n_s32(value);

    return (vi){vbicq_s32(x.a, vreinterpretq_s32_u32(vceqq_s32(b.a, v))),
                vbicq_s32(x.b, vreinterpretq_s32_u32(vceqq_s32(b.b, v)))};
}
/* Words of a table, one a lane. */
INLINE int32x4_t neon_gather(const uint32_t *table, int32x4_t index)
{
    uint32x4_t x = vld1q_dup_u32(table + vgetq_lane_s32(index, 0));

    x = vld1q_lane_u32(table + vgetq_lane_s32(index, 1), x, 1);
    x = vld1q_lane_u32(table + vgetq_lane_s32(index, 2), x, 2);
    return vreinterpretq_s32_u32(vld1q_lane_u32(table + vgetq_lane_s32(index, 3), x, 3));
}
INLINE vi vi_gather(const uint32_t *table, vi index)
{
    return (vi){neon_gather(table, index.a), neon_gather(table, index.b)};
}
/* The low halves of the lanes are F16 numbers. */
INLINE vf vi_halves_to_vf(vi x)
{
    return (vf){vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(x.a)))),
                vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(x.b))))};
}
/* zero + x, or zero - x where bits 4 * half + i of byte l of the lane's signs is set, i being that
 * of the byte in x. */
INLINE int32x4_t neon_with_signs(int32x4_t x, int32x4_t signs, int l, int half, int zero)
{
    static const uint8_t own[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const uint8x16_t order = vaddq_u8(vld1q_u8(own), vdupq_n_u8((uint8_t)l)),
                     bit = vreinterpretq_u8_u32(vdupq_n_u32(half ? 0x80402010u : 0x08040201u)),
                     minus = vtstq_u8(vqtbl1q_u8(neon_bytes(signs), order), bit);

    x = neon_words(vsubq_u8(veorq_u8(neon_bytes(x), minus), minus));
    return zero ? neon_words(vaddq_u8(neon_bytes(x), vdupq_n_u8((uint8_t)zero))) : x;
}
INLINE vi vi_with_signs(vi x, vi signs, int l, int half, int zero)
{
    return (vi){neon_with_signs(x.a, signs.a, l, half, zero),
                neon_with_signs(x.b, signs.b, l, half, zero)};
}

#endif
