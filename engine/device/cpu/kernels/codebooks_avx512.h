/* Codebook formats (IQ2, IQ3) times one token with VBMI, 16 rows, one per lane. A table of 128
 * bytes is in two registers, from which one instruction picks 64: an index of 8 to 10 bits takes 2
 * to 8 of those and one fewer blends by the bits above the seventh. All points of a block, or of
 * half of it, are looked up in parallel, for a few columns of each; single loads, or gathers, take
 * 1.4 to 3.5 times as long (for the 2048 points of IQ1 the lookups would cost more than they save).
 * Instead the activations of those columns are made adjacent, and signs negate them. Integers are
 * exact, so the sums are those of unpack_words.inc. Included by gemv_codebooks_avx512.c after
 * unpack.inc. Pure functions. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_CODEBOOKS_AVX512_H
#define ENGINE_DEVICE_CPU_KERNELS_CODEBOOKS_AVX512_H

#include "engine/device/cpu/kernels/codebooks.h"

/* The eight columns of four points, or the four of eight, of a block's activations: column i of
 * each, side by side. */
struct turned {
    _Alignas(32) int8_t q[8][4];
};

/* Bytes 0 .. 3 of every lane's word, from `first` on, `step` bits apart. */
INLINE vi bits_a_byte(vi words, const int first, const int step)
{
#define OFFSETS(from) from, from + step, from + 2 * step, from + 3 * step
    const vi at = _mm512_broadcast_i64x2(
        _mm_setr_epi8(OFFSETS(first), OFFSETS(32 + first), OFFSETS(first), OFFSETS(32 + first)));
#undef OFFSETS

    return _mm512_multishift_epi64_epi8(at, words);
}

/* For each index a byte of the table of `halves` times 128: seven bits in `low`, above[b]: whether
 * bit 7 + b is set. */
INLINE vi pick(const uint8_t *table, const int halves, vi low, const __mmask64 *above)
{
    vi x[8];

#pragma GCC unroll 8
    for (int i = 0; i < halves; i++)
        x[i] = _mm512_permutex2var_epi8(vi_load(table + 128 * i), low,
                                        vi_load(table + 128 * i + 64));
#pragma GCC unroll 3
    for (int b = 0, n = halves / 2; n > 0; b++, n /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            x[i] = _mm512_mask_blend_epi8(above[b], x[2 * i], x[2 * i + 1]);
    return x[0];
}

/* Signs of eight columns a byte from seven: their number is even. */
INLINE vi eight_signs(vi seven)
{
    return _mm512_permutex2var_epi8(vi_load(codebooks.signs), seven, vi_load(codebooks.signs + 64));
}

INLINE vi turn(vi q, __mmask64 minus)
{
    return _mm512_mask_sub_epi8(q, minus, vi_set1(0), q);
}

/* Four points of eight columns: byte l of q[i] is column i of point l. */
INLINE void turn_points(const struct act_block *a, struct turned *t)
{
    const __m256i at = _mm256_setr_epi8(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27, 4,
                                        12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);

    _mm256_store_si256((void *)t,
                       _mm256_permutexvar_epi8(at, _mm256_loadu_si256((const void *)a->q)));
}

/* Eight points of four columns: byte k of q[4 * h + i] is column i of point 4 * h + k. */
INLINE void turn_small_points(const struct act_block *a, struct turned *t)
{
    const __m256i at = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));

    _mm256_store_si256((void *)t, _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)a->q), at));
}

/* That byte of the two halves of a's word, then of b's. */
INLINE vi byte_of_halves(vi a, vi b, const int byte)
{
    const vi of_a = _mm512_broadcast_i32x4(
                 _mm_setr_epi8(0, 2, -1, -1, 4, 6, -1, -1, 8, 10, -1, -1, 12, 14, -1, -1)),
             of_b = _mm512_broadcast_i32x4(
                 _mm_setr_epi8(-1, -1, 0, 2, -1, -1, 4, 6, -1, -1, 8, 10, -1, -1, 12, 14));

    a = _mm512_shuffle_epi8(byte ? vi_down(a, 8) : a, of_a);
    return vi_or(a, _mm512_shuffle_epi8(byte ? vi_down(b, 8) : b, of_b));
}

/* ---- IQ2: points of eight columns ---- */

/* Block j: low bits of the four indices, bits above the eighth (each byte's lowest ones), signs of
 * the columns. */
struct points {
    vi low, high, signs;
};

INLINE void read_points(enum dtype type, const uint8_t *words, const int j, struct points *p)
{
    vi a, b;

    switch (type) {
    case DTYPE_IQ2_XXS:
        p->low = superblock_word(words, VL, 0, 2 * j);
        p->signs = eight_signs(bits_a_byte(superblock_word(words, VL, 0, 2 * j + 1), 0, 7));
        break;
    case DTYPE_IQ2_XS: /* 9 bits and 7 signs each */
        a = superblock_word(words, VL, 0, 2 * j);
        b = superblock_word(words, VL, 0, 2 * j + 1);
        p->low = byte_of_halves(a, b, 0);
        p->high = byte_of_halves(a, b, 1);
        p->signs = eight_signs(vi_down(p->high, 1));
        break;
    case DTYPE_IQ2_S:
        p->low = superblock_word(words, VL, 0, j);
        p->high = bits_a_byte(superblock_word(words, VL, 0, 16 + j / 4), j % 4 * 8, 2);
        p->signs = superblock_word(words, VL, 0, 8 + j);
        break;
    default: break;
    }
}

/* Two bits of each of eight columns: of the first four, of the others. */
INLINE void pick_points(enum dtype type, const struct points *p, vi codes[2])
{
    const int halves = CODEBOOK_POINTS(type) / 128;
    const uint8_t *table = codebook_of(type);
    __mmask64 above[3] = {_mm512_movepi8_mask(p->low)};

    for (int b = 0; 2 << b < halves; b++)
        above[b + 1] = _mm512_test_epi8_mask(p->high, vi_set1_byte(1 << b));
    for (int k = 0; k < 2; k++)
        codes[k] = pick(table + k * CODEBOOK_POINTS(type), halves, p->low, above);
}

/* Both halves' factors as pairs of 16 bits: 2x + 1, x of `bits` bits from `first` on. */
INLINE vi pair_factors(vi word, const int first, const int bits)
{
    vi x = vi_and(bits_a_byte(word, first, 0), vi_set1((1 << bits) - 1)),
       y = vi_and(bits_a_byte(word, first + bits, 0), vi_set1(((1 << bits) - 1) << 16));

    x = vi_or(x, y);
    return vi_or(vi_up(x, 1), vi_set1_pair(1));
}

INLINE vi half_factors(enum dtype type, const uint8_t *words, const int j)
{
    return pair_factors(superblock_word(words, VL, 0, (type == DTYPE_IQ2_XS ? 16 : 18) + j / 4),
                        j % 4 * 8, 4);
}

/* IQ2. Two columns' codes, a nibble, choose the magnitude of either. */
INLINE vi iq2_sum(enum dtype type, const uint8_t *words, const int j, const struct act_block *a)
{
    const vi magnitude[2] = {vi_table(codebook_first), vi_table(codebook_second)},
             nibble = vi_set1_byte(15);
    struct points p;
    struct turned t;
    vi codes[2], sum[2] = {vi_set1(0), vi_set1(0)}, factors = vi_set1(0);

    turn_points(a, &t);
    read_points(type, words, j, &p);
    pick_points(type, &p, codes);
    if (format_of[type].halves)
        factors = half_factors(type, words, j);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi pair = vi_and(i % 4 < 2 ? codes[i / 4] : vi_down(codes[i / 4], 4), nibble),
           w = vi_lookup(magnitude[i % 2], pair),
           q = turn(vi_broadcast(t.q[i]), _mm512_test_epi8_mask(p.signs, vi_set1_byte(1 << i)));

        if (format_of[type].halves)
            sum[i % 2] = _mm512_dpwssd_epi32(sum[i % 2], _mm512_maddubs_epi16(w, q), factors);
        else
            sum[i % 2] = vi_dp4(sum[i % 2], w, q);
    }
    return vi_add(sum[0], sum[1]);
}

/* ---- IQ3: points of four columns ---- */

/* Magnitudes of four columns of four points. IQ3_S: two are a byte's nibbles. */
INLINE void pick_small_points(enum dtype type, vi low, vi high, vi w[4])
{
    const uint8_t *table = codebook_of(type);
    const __mmask64 above[2] = {_mm512_movepi8_mask(low),
                                _mm512_test_epi8_mask(high, vi_set1_byte(1))};

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        if (type == DTYPE_IQ3_XXS)
            w[i] = pick(table + 256 * i, 2, low, above);
        else if (i % 2 == 0)
            w[i] = pick(table + 256 * i, 4, low, above);
        else
            w[i] = vi_and(vi_down(w[i - 1], 4), vi_set1_byte(15));
    for (int i = 0; type == DTYPE_IQ3_S && i < 4; i += 2)
        w[i] = vi_and(w[i], vi_set1_byte(15));
}

INLINE vi iq3_sum(enum dtype type, const uint8_t *words, const int j, const struct act_block *a)
{
    const vi each = _mm512_broadcast_i32x4(
                 _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13)),
             column = vi_set1(0x10011001);
    vi signs = type == DTYPE_IQ3_S
                   ? superblock_word(words, VL, 0, 18 + j)
                   : eight_signs(bits_a_byte(superblock_word(words, VL, 0, 16 + j), 0, 7)),
       sum[2] = {vi_set1(0), vi_set1(0)}, high = vi_set1(0);
    struct turned t;

    turn_small_points(a, &t);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        vi w[4], own = _mm512_shuffle_epi8(signs, vi_add_bytes(each, vi_set1_byte(2 * h)));

        if (type == DTYPE_IQ3_S)
            high = bits_a_byte(superblock_word(words, VL, 0, 16 + j / 4), j % 4 * 8 + 4 * h, 1);
        pick_small_points(type, superblock_word(words, VL, 0, 2 * j + h), high, w);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[i % 2] = vi_dp4(sum[i % 2], w[i],
                                turn(vi_broadcast(t.q[4 * h + i]),
                                     _mm512_test_epi8_mask(own, _mm512_slli_epi32(column, i))));
    }
    return vi_add(sum[0], sum[1]);
}

/* The integer sum of block j, halves times their factors. */
INLINE vi codebook_sum(enum dtype type, const uint8_t *words, const int j,
                       const struct act_block *a)
{
    return type == DTYPE_IQ3_XXS || type == DTYPE_IQ3_S ? iq3_sum(type, words, j, a)
                                                        : iq2_sum(type, words, j, a);
}

#endif
