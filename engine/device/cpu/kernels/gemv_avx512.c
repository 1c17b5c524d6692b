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
#include "engine/device/cpu/kernels/formats.h"

#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/prefetch.h"
#include "engine/device/cpu/kernels/unpack_avx512.h"

/* groups with fewer bytes are read one after the other: four side by side would be over before they
 * run */
#define SHORT ((size_t)12 << 10)

INLINE __m512i four(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}

/* The integer sum of a block: two chains, for a multiply-add takes five cycles. Formats of plain
 * nibbles leave the high ones where they are, sixteen times their value, which costs no shift a
 * word. */
INLINE __m512i nibble_sum(const uint8_t *payload, const struct act_block *a, int start)
{
    __m512i low = _mm512_set1_epi32(start), high = _mm512_setzero_si512(),
            nibble = _mm512_set1_epi8(15);

    for (int k = 0; k < 4; k++) {
        __m512i x = _mm512_loadu_si512(payload + 64 * k);

        low = _mm512_dpbusd_epi32(low, _mm512_and_si512(x, nibble), four(a->q + 4 * k));
        high = _mm512_dpbusd_epi32(high, _mm512_andnot_si512(nibble, x), four(a->q + 16 + 4 * k));
    }
    return _mm512_add_epi32(low, _mm512_srai_epi32(high, 4));
}

INLINE __m512i word_sum(const __m512i *w, const int8_t *q, const int words, int start)
{
    __m512i even = _mm512_set1_epi32(start), odd = _mm512_setzero_si512();

    for (int k = 0; k < words; k += 2) {
        even = _mm512_dpbusd_epi32(even, w[k], four(q + 4 * k));
        odd = _mm512_dpbusd_epi32(odd, w[k + 1], four(q + 4 * k + 4));
    }
    return _mm512_add_epi32(even, odd);
}

INLINE __m512 block_step(enum dtype type, const uint8_t *data, const struct superblock_scales *sb,
                         int j, const struct act_block *a, __m512 acc)
{
    __m512 d = _mm512_set1_ps(a->d), f, scale = sb->d, min = sb->m;
    struct unpacked_block b;

    if (type == DTYPE_Q4_0 || type == DTYPE_Q4_1 || type == DTYPE_Q4_K) {
        f = _mm512_cvtepi32_ps(nibble_sum(data, a, type == DTYPE_Q4_0 ? a->m8 : 0));
        if (type == DTYPE_Q4_K) {
            scale = _mm512_mul_ps(sb->d, byte_of(sb->scales[j / 4], j & 3));
            min = _mm512_mul_ps(sb->m, byte_of(sb->mins[j / 4], j & 3));
        }
    } else {
        read_block(type, data, sb, j, &b);
        scale = b.d;
        min = b.m;
        if (type == DTYPE_Q6_K) {
            f = _mm512_mul_ps(_mm512_cvtepi32_ps(word_sum(b.w, a->q, 4, -32 * a->low)), b.f0);
            f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(
                                    word_sum(b.w + 4, a->q + 16, 4, -32 * (a->sum - a->low))),
                                b.f1, f);
        } else {
            int start = type == DTYPE_Q8_0 || type == DTYPE_IQ4_NL ? a->m128
                        : type == DTYPE_Q5_0                       ? 2 * a->m8
                                                                   : 0;

            f = _mm512_cvtepi32_ps(word_sum(b.w, a->q, 8, start));
        }
    }
    acc = _mm512_fmadd_ps(f, _mm512_mul_ps(scale, d), acc);
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
        acc = _mm512_fmadd_ps(_mm512_set1_ps(a->fsum), _mm512_mul_ps(min, d), acc);
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K)
        acc = _mm512_fnmadd_ps(_mm512_set1_ps(a->fsum), _mm512_mul_ps(min, d), acc);
    return acc;
}

/* ns (a constant) groups of 16 rows from `at`; reading goes on at `next`. */
INLINE void gemv_groups(enum dtype type, const uint8_t *const *at, const uint8_t *const *next,
                        float *const *out, const int ns, int n, const struct act_block *a)
{
    enum { FAR = PREFETCH_GEMV_FAR, NEAR = PREFETCH_GEMV_NEAR };
    const int per = format_blocks(type), head_bytes = format_head(type) * 16,
              block_bytes = format_block_bytes(type) * 16, step = block_bytes + head_bytes / per;
    const size_t superblock_bytes = (size_t)(head_bytes + per * block_bytes),
                 total = superblock_bytes * (size_t)(n / per);
    const size_t far_end = total > FAR ? total - FAR : 0,
                 near_end = total > NEAR ? total - NEAR : 0;
    /* no pointers: a hint may lead anywhere */
    uintptr_t here[KERNEL_GEMV_GROUPS], after[KERNEL_GEMV_GROUPS];
    __m512 acc[KERNEL_GEMV_GROUPS], saved[2][KERNEL_GEMV_GROUPS];
    struct superblock_scales sb[KERNEL_GEMV_GROUPS];
    size_t pos = 0;
    int j = 0;

    for (int s = 0; s < ns; s++) {
        here[s] = (uintptr_t)at[s];
        after[s] = next[s] ? (uintptr_t)next[s] - total : here[s];
    }
    for (int quarter = 0, b = 0; quarter < 4; quarter++) {
        int end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int s = 0; s < ns; s++)
            acc[s] = _mm512_setzero_ps();
        for (; b < end; b++, a++) {
            size_t data = pos + (j == 0 ? (size_t)head_bytes : 0);

            for (int s = 0; s < ns; s++) {
                uintptr_t ahead = (pos >= far_end ? after : here)[s] + pos + FAR,
                          soon = (pos >= near_end ? after : here)[s] + pos + NEAR;

                for (int i = 0; i < step; i += 64) {
                    _mm_prefetch((const char *)(ahead + (uintptr_t)i), _MM_HINT_T1);
                    _mm_prefetch((const char *)(soon + (uintptr_t)i), _MM_HINT_T0);
                }
                if (j == 0)
                    read_superblock_scales(type, at[s] + pos, &sb[s]);
                acc[s] = block_step(type, at[s] + data, &sb[s], j, a, acc[s]);
            }
            pos = data + (size_t)block_bytes;
            j = j + 1 == per ? 0 : j + 1;
        }
        for (int s = 0; s < ns; s++) {
            if (quarter == 0 || quarter == 2)
                saved[quarter / 2][s] = acc[s];
            else if (quarter == 1)
                saved[0][s] = _mm512_add_ps(saved[0][s], acc[s]);
            else
                _mm512_storeu_ps(out[s],
                                 _mm512_add_ps(saved[0][s], _mm512_add_ps(saved[1][s], acc[s])));
        }
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

#define X(type, name, blocks, head, bytes)                                                      \
    void gemv_##name##_avx512(const struct kernel_gemv *s, int cols, const struct act_block *a) \
    {                                                                                           \
        gemv_any(type, s, cols, a);                                                             \
    }
FORMATS(X)
X(DTYPE_Q8_0, q8_0, , , )
X(DTYPE_Q4_0, q4_0, , , )
#undef X
#endif
