/* AVX-512 products of one token: decoding, which is bound by memory alone. Row groups stand side by
 * side (kernels.h), since activations that serve four groups are loaded once, and the weights leave
 * the first-level cache to them that much longer.
 *
 * One core keeps no more than some fifty lines under way, so every moment in which it asks for
 * fewer is lost. Lines are asked for twice: far ahead into the second-level cache and again,
 * nearer, into the first; that reads a tenth faster than either alone, and asking twice for a line
 * that two blocks share does no harm. Where a group ends the prefetches go on in the next, so that
 * it does not begin cold. The sums' bits are those of kernels_avx512.c: integers are exact in any
 * order. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/prefetch.h"
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"

/* groups with fewer bytes are read one after the other: four side by side would be over before they
 * run */
#define SHORT ((size_t)12 << 10)

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

INLINE vf block_step(enum dtype type, const uint8_t *superblock, const struct superblock_scales *sb,
                     int j, const struct act_block *a, vf acc)
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
        if (format_of[type].halves) {
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

/* ns (a constant) groups of 16 rows from `at`; reading goes on at `next`. */
INLINE void gemv_groups(enum dtype type, const uint8_t *const *at, const uint8_t *const *next,
                        float *const *out, const int ns, int n, const struct act_block *a)
{
    enum { FAR = PREFETCH_GEMV_FAR, NEAR = PREFETCH_GEMV_NEAR };
    const int per = format_of[type].blocks, step = format_superblock(type) * 16 / per;
    const size_t superblock_bytes = (size_t)format_superblock(type) * 16,
                 total = superblock_bytes * (size_t)(n / per);
    const size_t far_end = total > FAR ? total - FAR : 0,
                 near_end = total > NEAR ? total - NEAR : 0;
    /* no pointers: a hint may lead anywhere */
    uintptr_t here[KERNEL_GEMV_GROUPS], after[KERNEL_GEMV_GROUPS];
    vf acc[KERNEL_GEMV_GROUPS], saved[KERNEL_GEMV_GROUPS][2];
    struct superblock_scales sb[KERNEL_GEMV_GROUPS];
    size_t pos = 0, superblock = 0;
    int j = 0;

    for (int s = 0; s < ns; s++) {
        here[s] = (uintptr_t)at[s];
        after[s] = next[s] ? (uintptr_t)next[s] - total : here[s];
    }
    for (int quarter = 0, b = 0; quarter < 4; quarter++) {
        int end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int s = 0; s < ns; s++)
            acc[s] = vf_set1(0.0f);
        for (; b < end; b++, a++) {
            for (int s = 0; s < ns; s++) {
                uintptr_t ahead = (pos >= far_end ? after : here)[s] + pos + FAR,
                          soon = (pos >= near_end ? after : here)[s] + pos + NEAR;

                for (int i = 0; i < step; i += 64) {
                    _mm_prefetch((const char *)(ahead + (uintptr_t)i), _MM_HINT_T1);
                    _mm_prefetch((const char *)(soon + (uintptr_t)i), _MM_HINT_T0);
                }
                if (j == 0)
                    read_superblock_scales(type, at[s] + superblock, VL, 0, &sb[s]);
                acc[s] = block_step(type, at[s] + superblock, &sb[s], j, a, acc[s]);
            }
            pos += (size_t)step;
            if (++j == per) {
                j = 0;
                superblock += superblock_bytes;
            }
        }
        for (int s = 0; s < ns; s++)
            keep_quarter(quarter, acc[s], saved[s], out[s]);
    }
}

INLINE void gemv_any(enum dtype type, const struct kernel_gemv *s, int cols,
                     const struct act_block *a)
{
    int n = cols / NUM_BLOCK, i = 0;

    if (s->n == 4 && dtype_row_bytes(type, cols) * 16 >= SHORT) {
        gemv_groups(type, s->at, s->next, s->out, 4, n, a);
        return;
    }
    if (dtype_row_bytes(type, cols) * 16 >= SHORT)
        for (; i + 2 <= s->n; i += 2)
            gemv_groups(type, s->at + i, s->next + i, s->out + i, 2, n, a);
    for (; i < s->n; i++) {
        const uint8_t *next = i + 1 < s->n ? s->at[i + 1] : s->next[0];

        gemv_groups(type, s->at + i, &next, s->out + i, 1, n, a);
    }
}

#define FORMAT(id, name, ...)                                                                   \
    void gemv_##name##_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a) \
    {                                                                                           \
        gemv_any(DTYPE_##id, s, cols, a);                                                       \
    }
#include "engine/file/formats.def"
#endif
