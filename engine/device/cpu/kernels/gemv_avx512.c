/* AVX-512 products of one token: gemv.inc, 16 rows, one a lane. The sums' bits are those of
 * formats_avx512.c: integers are exact in any order. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"

INLINE bool is_plain_nibbles(enum dtype type)
{
    const struct format_traits *f = &format_of[type];

    return f->bits == 4 && !f->high && !f->lookup && !f->words;
}

/* The integer sum of a block: two chains, for a multiply-add takes five cycles. Formats of plain
 * nibbles leave the high ones where they are, sixteen times their value, which costs no shift a
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

INLINE vf gemv_block(enum dtype type, const uint8_t *superblock,
                     const struct superblock_scales *sb, int j, const struct act_block *a, vf acc)
{
    const uint8_t *data = block_data(type, superblock, VL, j);
    struct unpacked_block b;
    vf sum;

    read_block_scales(type, superblock, VL, 0, sb, j, &b);
    if (is_plain_nibbles(type)) {
        sum = vi_to_vf(nibble_sum(data, a, format_sum_start(type, a)));
    } else {
        unpack(type, data, VL, 0, j, b.w);
        if (format_of[type].halves == 2) {
            acc = add_own_half(&b, 0, word_sum(b.w, a->q, 4, format_half_start(type, a, 0)), a,
                               acc);
            return add_own_half(
                &b, 1, word_sum(b.w + 4, a->q + 16, 4, format_half_start(type, a, 1)), a, acc);
        }
        if (halves_paired(type)) {
            sum = add_halves(&b, word_sum(b.w, a->q, 4, format_half_start(type, a, 0)),
                             word_sum(b.w + 4, a->q + 16, 4, format_half_start(type, a, 1)));
        } else if (format_of[type].halves) {
            sum = add_half(&b, 0, word_sum(b.w, a->q, 4, format_half_start(type, a, 0)),
                           vf_set1(0.0f));
            sum = add_half(&b, 1, word_sum(b.w + 4, a->q + 16, 4, format_half_start(type, a, 1)),
                           sum);
        } else {
            sum = vi_to_vf(word_sum(b.w, a->q, 8, format_sum_start(type, a)));
        }
    }
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
