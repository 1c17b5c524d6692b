/* NEON dot products of the quantised formats: dot.inc, eight rows, one per lane; groups of 16 rows
 * are done as two halves. formats_dotprod.c and formats_i8mm.c compile this text again: with four
 * products of bytes and their sum in one instruction, and with the products of two rows and two
 * tokens in one. Without those, bytes are multiplied to 16 bits, of which as many are added as fit.
 * Words are multiplied with a word out of a register of activations, so that none is broadcast. */
#if defined(__aarch64__)
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/prefetch.h"
#include "engine/device/cpu/kernels/vector_neon.h"

#define GROUPS 1
#define STEP_TOKENS 4
#define SMALL_BATCH 1
#define PAIRS 0
#define PREFETCH_TOKENS 2

INLINE int most_words(enum dtype type)
{
    return 8;
}

/* Both factors have a sign. */
#define SIGNED_CODES(type) (format_largest(type) > 127)
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define TOKEN_PAIRS 1
#endif
#if defined(__ARM_FEATURE_DOTPROD)
#define NEON_DOT(sum, w, q, lane) vdotq_laneq_s32(sum, vreinterpretq_s8_s32(w), q, lane)
#endif

#if defined(NEON_DOT)
/* n: 4 or 8 */
INLINE vi multiply(enum dtype type, vi sum, const vi *w, const int8_t *q, const int n)
{
#define WORD(i, lane)                          \
    sum.a = NEON_DOT(sum.a, w[i].a, at, lane); \
    sum.b = NEON_DOT(sum.b, w[i].b, at, lane)
    int8x16_t at = vld1q_s8(q);

    WORD(0, 0);
    WORD(1, 1);
    WORD(2, 2);
    WORD(3, 3);
    if (n == 8) {
        at = vld1q_s8(q + 16);
        WORD(4, 0);
        WORD(5, 1);
        WORD(6, 2);
        WORD(7, 3);
    }
#undef WORD
    return sum;
}
#else
/* How many products fit in 16 bits. */
INLINE int most_products(enum dtype type)
{
    const int largest = SIGNED_CODES(type) ? 128 : format_largest(type),
              most = INT16_MAX / (127 * largest);

    return most >= 8 ? 8 : most >= 4 ? 4 : 2;
}

/* Four rows. */
INLINE int32x4_t multiply_rows(enum dtype type, int32x4_t sum, const int8x16_t w[8],
                               const int8x16_t q[8], const int n)
{
    const int each = most_products(type) < n ? most_products(type) : n;
    int32x4_t low = vdupq_n_s32(0), high = low;

#pragma GCC unroll 4
    for (int i = 0; i < n; i += each) {
        int16x8_t l = vmull_s8(vget_low_s8(w[i]), vget_low_s8(q[i])), h = vmull_high_s8(w[i], q[i]);

#pragma GCC unroll 8
        for (int k = i + 1; k < i + each; k++) {
            l = vmlal_s8(l, vget_low_s8(w[k]), vget_low_s8(q[k]));
            h = vmlal_high_s8(h, w[k], q[k]);
        }
        low = i ? vpadalq_s16(low, l) : vpaddlq_s16(l);
        high = i ? vpadalq_s16(high, h) : vpaddlq_s16(h);
    }
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

INLINE vi multiply(enum dtype type, vi sum, const vi *w, const int8_t *q, const int n)
{
    int8x16_t x[8], a[8], b[8];

#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        x[i] = vreinterpretq_s8_s32(vi_broadcast(q + 4 * i).a);
        a[i] = vreinterpretq_s8_s32(w[i].a);
        b[i] = vreinterpretq_s8_s32(w[i].b);
    }
    return (vi){multiply_rows(type, sum.a, a, x, n), multiply_rows(type, sum.b, b, x, n)};
}
#endif

#if TOKEN_PAIRS
/* Words 2k and 2k + 1 of rows 0 .. 3 and 4 .. 7 become eight bytes each of rows 0, 1 and 2, 3; and
 * of 4, 5 and 6, 7. */
INLINE void pair_words(vi w[8])
{
#pragma GCC unroll 4
    for (int k = 0; k < 8; k += 2) {
        vi x = w[k], y = w[k + 1];

        w[k] = (vi){vzip1q_s32(x.a, y.a), vzip1q_s32(x.b, y.b)};
        w[k + 1] = (vi){vzip2q_s32(x.a, y.a), vzip2q_s32(x.b, y.b)};
    }
}

INLINE int8x16_t pair_of(int8x16_t x, int8x16_t y, const bool second)
{
    const int64x2_t a = vreinterpretq_s64_s8(x), b = vreinterpretq_s64_s8(y);

    return vreinterpretq_s8_s64(second ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}

/* Two rows by two tokens an instruction; n: 4 or 8 words. */
INLINE void multiply_pair(vi *s, vi *t, const vi *w, const int8_t *q, const int8_t *r, const int n)
{
    int32x4_t a = vzip1q_s32(s->a, t->a), b = a, c = vzip1q_s32(s->b, t->b), d = c;

#pragma GCC unroll 4
    for (int k = 0; k < n; k += 2) {
        int8x16_t x = pair_of(vld1q_s8(q + k / 4 * 16), vld1q_s8(r + k / 4 * 16), k % 4);

        a = vmmlaq_s32(a, vreinterpretq_s8_s32(w[k].a), x);
        b = vmmlaq_s32(b, vreinterpretq_s8_s32(w[k + 1].a), x);
        c = vmmlaq_s32(c, vreinterpretq_s8_s32(w[k].b), x);
        d = vmmlaq_s32(d, vreinterpretq_s8_s32(w[k + 1].b), x);
    }
    *s = (vi){vuzp1q_s32(a, b), vuzp1q_s32(c, d)};
    *t = (vi){vuzp2q_s32(a, b), vuzp2q_s32(c, d)};
}

/* One token by the same words. */
INLINE vi multiply_odd(vi s, const vi *w, const int8_t *q, const int n)
{
    int32x4_t a = vdupq_n_s32(0), b = a, c = a, d = a;

#pragma GCC unroll 4
    for (int k = 0; k < n; k += 2) {
        int8x16_t x = vreinterpretq_s8_s64(
            vld1q_dup_s64((const int64_t *)(const void *)(q + 4 * k)));

        a = vdotq_s32(a, vreinterpretq_s8_s32(w[k].a), x);
        b = vdotq_s32(b, vreinterpretq_s8_s32(w[k + 1].a), x);
        c = vdotq_s32(c, vreinterpretq_s8_s32(w[k].b), x);
        d = vdotq_s32(d, vreinterpretq_s8_s32(w[k + 1].b), x);
    }
    return vi_add(s, (vi){vpaddq_s32(a, b), vpaddq_s32(c, d)});
}
#endif

struct prefetch {
    const uint8_t *at;
};

INLINE struct prefetch prefetch_from(const uint8_t *at, size_t left, size_t group, const int groups)
{
    return (struct prefetch){at + PREFETCH_NEON_GEMM};
}

INLINE void prefetch_part(const struct prefetch *a, const int groups, const int bytes, const int i,
                          const int parts)
{
    for (int k = 0; k < bytes; k += 64)
        __builtin_prefetch(a->at + k, 0, 2);
}

#include "engine/device/cpu/kernels/dot.inc"

INLINE bool is_whole(enum dtype type)
{
    return false;
}

#if defined(NEON_DOT)
/* Whether a block is its payload alone. */
INLINE bool plain_payload(enum dtype type)
{
    const struct format_traits *f = &format_of[type];

    return !f->words && !f->high && !f->halves;
}

/* The low or the high four bits of every byte, as codes or as their values. */
INLINE int8x16_t nibbles_of(enum dtype type, uint8x16_t x, const bool high)
{
    const int row = format_of[type].lookup;

    x = high ? vshrq_n_u8(x, 4) : vandq_u8(x, vdupq_n_u8(15));
    return row ? vqtbl1q_s8(vld1q_s8(blocks_values[row]), x) : vreinterpretq_s8_u8(x);
}

/* Four registers from *at, which advances. The compiler is not to know from where: this load has no
 * offset, so each would be preceded by the sum of its address. */
INLINE uint8x16x4_t load_four(const uint8_t **at)
{
    const uint8_t *p = *at;

    __asm__("" : "+r"(p));
    *at = p + 64;
    return vld1q_u8_x4(p);
}

/* The integer sums of a block of VL rows. Its payload lies in one piece: four registers a load, two
 * words of both halves of the rows, that are multiplied where they are. */
INLINE vi plain_sums(enum dtype type, const uint8_t *payload, const struct act_block *a)
{
    const int8x16_t q = vld1q_s8(a->q), r = vld1q_s8(a->q + 16);
    vi s = vi_set1(format_of[type].lookup ? 0 : sum_start(type, a));

#define PART(code, v, lane)                             \
    s.a = vdotq_laneq_s32(s.a, code(0), v, lane);       \
    s.b = vdotq_laneq_s32(s.b, code(1), v, lane);       \
    s.a = vdotq_laneq_s32(s.a, code(2), v, (lane) + 1); \
    s.b = vdotq_laneq_s32(s.b, code(3), v, (lane) + 1)
#define BYTE(i) vreinterpretq_s8_u8(x.val[i])
#define LOW(i) nibbles_of(type, x.val[i], false)
#define HIGH(i) nibbles_of(type, x.val[i], true)
    uint8x16x4_t x = load_four(&payload);

    if (format_of[type].bits == 8) {
        PART(BYTE, q, 0);
        x = load_four(&payload);
        PART(BYTE, q, 2);
        x = load_four(&payload);
        PART(BYTE, r, 0);
        x = load_four(&payload);
        PART(BYTE, r, 2);
        return s;
    }
    PART(LOW, q, 0);
    PART(HIGH, r, 0);
    x = load_four(&payload);
    PART(LOW, q, 2);
    PART(HIGH, r, 2);
#undef PART
#undef BYTE
#undef LOW
#undef HIGH
    return s;
}
#endif

/* Kept as numbers for a superblock, factors that are bytes would go through memory. */
#define HALVES_AT_USE(type) (format_of[type].halves == 1 && !format_of[type].words)

INLINE vf gemv_block(enum dtype type, const uint8_t *superblock, struct superblock_scales *sb,
                     int j, const struct act_block *a, vf acc)
{
    const uint8_t *data = block_data(type, superblock, VL, j);
    struct unpacked_block b;

#if TOKEN_PAIRS
    b.paired = false;
#endif
    read_block_scales(type, superblock, VL, 0, sb, j, &b);
    if (HALVES_AT_USE(type)) {
        for (int h = 0; h < 2; h++)
            b.half[h] = read_half(superblock, VL, 0, 2 * j + h);
        b.base = vf_mul(b.half[0], vf_set1(-SUM_BASE));
    }
#if defined(NEON_DOT)
    if (plain_payload(type))
        return add_block(type, &b, vi_to_vf(plain_sums(type, data, a)), a, acc);
#endif
    unpack(type, data, VL, 0, j, b.w);
    block_step(type, &b, 1, a, 1, (vf(*)[GROUPS]) & acc);
    return acc;
}

#define GEMV_TURN 2
#include "engine/device/cpu/kernels/gemv.inc"

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define DOT(name) dot_##name##_i8mm
#define GEMV(name) gemv_##name##_i8mm
#elif defined(__ARM_FEATURE_DOTPROD)
#define DOT(name) dot_##name##_dotprod
#define GEMV(name) gemv_##name##_dotprod
#else
#define DOT(name) dot_##name##_neon
#define GEMV(name) gemv_##name##_neon
#endif
#include "engine/device/cpu/kernels/formats_rows8.inc"
#endif
