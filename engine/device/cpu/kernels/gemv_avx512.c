/* AVX-512 products of one token: gemv.inc, 16 rows, one per lane. The sums' bits are those of
 * formats_avx512.c: integers are exact in any order. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"
#include "engine/device/cpu/kernels/sums_avx512.h"

#define UNEVEN 1
#include "engine/device/cpu/kernels/uneven.inc"

INLINE bool is_plain_nibbles(enum dtype type)
{
    const struct format_traits *f = &format_of[type];

    return f->bits == 4 && !f->high && !f->lookup && !f->words;
}

/* The integer sum of a block: two chains, because a multiply-add takes five cycles. Formats of
 * plain nibbles leave the high ones in place, sixteen times their value, which saves a shift per
 * word. */
INLINE vi nibble_sum(const uint8_t *payload, const struct act_block *a, int start)
{
    vi low = vi_set1(start), high = vi_set1(0), nibble = vi_set1_byte(15);

    for (int k = 0; k < 4; k++) {
        vi x = vi_load(payload + 64 * k);

        low = vi_dp4(low, vi_and(x, nibble), vi_broadcast(a->q + 4 * k));
        high = vi_dp4(high, _mm512_andnot_si512(nibble, x), vi_broadcast(a->q + 16 + 4 * k));
    }
    return _mm512_add_epi32(low, _mm512_srai_epi32(high, 4));
}

INLINE vi word_sum(const vi *w, const int8_t *q, const int words, int start)
{
    vi even = vi_set1(start), odd = vi_set1(0);

    for (int k = 0; k < words; k += 2) {
        even = vi_dp4(even, w[k], vi_broadcast(q + 4 * k));
        odd = vi_dp4(odd, w[k + 1], vi_broadcast(q + 4 * k + 4));
    }
    return _mm512_add_epi32(even, odd);
}

INLINE bool is_points(enum dtype type)
{
    return type == DTYPE_IQ2_XXS || type == DTYPE_IQ2_XS || type == DTYPE_IQ2_S || is_ternary(type);
}

/* Whether a superblock's blocks are multiplied together, because their codes share words. */
INLINE bool is_together(enum dtype type)
{
    return type == DTYPE_TQ1_0 || type == DTYPE_TQ2_0 || halves_paired(type);
}

/* At block j, the first or in the middle: the blocks whose words are read together from there. */
INLINE void sums_together(enum dtype type, const uint8_t *data, int j, const struct act_block *a,
                          vi sum[8])
{
    if (type == DTYPE_TQ2_0 && j % 4 == 0)
        two_bit_sums(data + 64 * (2 * j), a, sum + j);
    else if (type == DTYPE_TQ1_0 && j == 0)
        ternary_sums(data, a, sum);
    else if (type == DTYPE_Q2_K && j % 4 == 0)
        q2_k_pairs(data + 64 * (4 + 2 * j), a, sum + j);
    else if (type == DTYPE_Q3_K && j == 0)
        q3_k_pairs(data, a, sum);
}

INLINE bool is_whole(enum dtype type)
{
    return is_together(type) || is_points(type) || is_uneven(type);
}

/* Both halves' sums. */
INLINE void half_sums(enum dtype type, const uint8_t *data, struct superblock_scales *sb, int j,
                      const struct act_block *a, vi sum[2])
{
    vi w[8];

    if (is_ternary(type)) {
        if (j == 0)
            iq1_join(type, data, sb->points);
        iq1_sums(type, data, j, (const uint16_t(*)[2 * VL]) sb->points, a, sum);
    } else if (is_points(type)) {
        iq2_sums(type, data, j, a, sum);
    } else {
        unpack(type, data, VL, 0, j, w);
        for (int h = 0; h < 2; h++)
            sum[h] = word_sum(w + 4 * h, a->q + 16 * h, 4, format_half_start(type, a, h));
    }
}

/* The sum of a block with equal halves. */
INLINE vi block_sum(enum dtype type, const uint8_t *data, struct superblock_scales *sb, int j,
                    const struct act_block *a)
{
    vi w[8];

    if (is_plain_nibbles(type))
        return nibble_sum(data, a, format_sum_start(type, a));
    if (is_points(type)) {
        half_sums(type, data, sb, j, a, w);
        return vi_add(w[0], w[1]);
    }
    unpack(type, data, VL, 0, j, w);
    return word_sum(w, a->q, 8, format_sum_start(type, a));
}

INLINE vf gemv_block(enum dtype type, const uint8_t *superblock, struct superblock_scales *sb,
                     int j, const struct act_block *a, vf acc)
{
    const uint8_t *data = block_data(type, superblock, VL, j);
    struct unpacked_block b;
    vi half[2];
    vf sum;

    if (is_together(type))
        sums_together(type, data, j, a, sb->sum);
    read_block_scales(type, superblock, VL, 0, sb, j, &b);
    if (halves_paired(type))
        return add_block(type, &b, vi_to_vf(factored(type, sb->sum[j], &b, a)), a, acc);
    if (is_together(type))
        return add_block(type, &b, vi_to_vf(sb->sum[j]), a, acc);
    if (!format_of[type].halves)
        return add_block(type, &b, vi_to_vf(block_sum(type, data, sb, j, a)), a, acc);
    half_sums(type, data, sb, j, a, half);
    if (format_of[type].halves == 2)
        return add_own_half(&b, 1, half[1], a, add_own_half(&b, 0, half[0], a, acc));
    sum = add_half(&b, 1, half[1], add_half(&b, 0, half[0], vf_set1(0.0f)));
    return add_block(type, &b, sum, a, acc);
}

#include "engine/device/cpu/kernels/gemv.inc"

#define FORMAT(id, name, ...)                                                                   \
    void gemv_##name##_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a) \
    {                                                                                           \
        gemv_any(DTYPE_##id, s, cols, a);                                                       \
    }
#include "engine/file/formats.def"
#endif
