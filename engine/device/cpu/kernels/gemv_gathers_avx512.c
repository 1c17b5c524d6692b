/* AVX-512 products of IQ1 with one token, for processors with fast gathers (Xeons since Sapphire
 * Rapids: eight points in some four cycles): gemv.inc, points gathered from the grid itself. IQ2's
 * permutations of bytes (codebooks_avx512.h) are as fast. The sums' bits are gemv_avx512.c's. */
#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/codebooks.h"
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"
#include "engine/device/cpu/kernels/sums_avx512.h"

/* Eight activations' sum, in every lane. */
INLINE vi eight_total(const int8_t *q)
{
    __m128i x = _mm_loadl_epi64((const void *)q),
            sums = _mm_sad_epu8(_mm_xor_si128(x, _mm_set1_epi8(-128)), _mm_setzero_si128());

    return _mm512_sub_epi32(_mm512_broadcastd_epi32(sums), vi_set1(8 * 128));
}

/* Adds eight columns of 16 rows, eight rows per vector. */
INLINE void add_points(vi index, vi q, vi sum[2])
{
    sum[0] = vi_dp4(sum[0], _mm512_i32gather_epi64(_mm512_castsi512_si256(index), grid_iq1_s, 8),
                    q);
    sum[1] = vi_dp4(sum[1],
                    _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(index, 1), grid_iq1_s, 8), q);
}

/* Both halves' sums of block j. IQ1's eighth, added to a point or subtracted, is the activations'
 * own sum. */
INLINE void iq1_gathered(enum dtype type, const uint8_t *words, int j, const struct act_block *a,
                         vi sum[2])
{
    vi high = superblock_half(words, VL, 0, 16 + j);

#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vi s[2] = {vi_set1(0), vi_set1(0)}, eighths = vi_set1(format_half_start(type, a, half));

#pragma GCC unroll 2
        for (int l = 2 * half; l < 2 * half + 2; l++) {
            const int at = type == DTYPE_IQ1_S ? 15 : 4 * l + 3;
            vi q = eight_broadcast(a->q + 8 * l), total = eight_total(a->q + 8 * l);
            __mmask16 below = _mm512_test_epi32_mask(high, vi_set1(1 << at));

            eighths = vi_add(eighths, _mm512_mask_sub_epi32(total, below, vi_set1(0), total));
            add_points(iq1_index(type, words, VL, 0, j, l, high), q, s);
        }
        sum[half] = vi_add(join_lanes(s), eighths);
    }
}

INLINE bool is_whole(enum dtype type)
{
    return true;
}

INLINE vf gemv_block(enum dtype type, const uint8_t *superblock, struct superblock_scales *sb,
                     int j, const struct act_block *a, vf acc)
{
    const uint8_t *data = block_data(type, superblock, VL, j);
    struct unpacked_block b;
    vi half[2];
    vf sum;

    iq1_gathered(type, data, j, a, half);
    read_block_scales(type, superblock, VL, 0, sb, j, &b);
    if (!format_of[type].halves)
        return add_block(type, &b, vi_to_vf(vi_add(half[0], half[1])), a, acc);
    sum = add_half(&b, 1, half[1], add_half(&b, 0, half[0], vf_set1(0.0f)));
    return add_block(type, &b, sum, a, acc);
}

/* 4 GB/s from the cache */
#define ALONE(type) true
#include "engine/device/cpu/kernels/gemv.inc"

#define GATHERED(id, name)                                                                      \
    void gemv_##name##_gather(const struct kernel_gemv *s, int cols, const struct act_block *a) \
    {                                                                                           \
        gemv_any(DTYPE_##id, s, cols, a);                                                       \
    }
GATHERED_FORMATS
#endif
