/* AVX2 dot products of the quantised formats: dot.inc, eight rows, one per lane; groups of 16 rows
 * are done as two halves. Bytes are multiplied by maddubs, whose 16-bit pair sums must not
 * saturate. formats_avxvnni.c compiles this text a second time, with an instruction that adds to 32
 * bits directly. */
#if defined(__AVX2__)
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/prefetch.h"
#include "engine/device/cpu/kernels/vector_avx2.h"

#define GROUPS 1
#define STEP_TOKENS 1
#define SMALL_BATCH 1
#define PAIRS 0
#define PREFETCH_TOKENS 2

#if defined(__AVXVNNI__)
#define SIGNED_CODES(type) false

INLINE int most_words(enum dtype type)
{
    return 1;
}

INLINE vi multiply(enum dtype type, vi sum, const vi *w, const int8_t *q, const int n)
{
    return vi_dp4(sum, *w, vi_broadcast(q));
}
#else
/* A pair sum of larger codes would saturate. */
#define SIGNED_CODES(type) (format_largest(type) > 127)

/* Number of words whose pair sums fit in 16 bits. */
INLINE int most_words(enum dtype type)
{
    const int most = INT16_MAX / (2 * 127 * format_largest(type));

    return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

INLINE vi multiply(enum dtype type, vi sum, const vi *w, const int8_t *q, const int n)
{
    vi ones = _mm256_set1_epi16(1), s;

    if (SIGNED_CODES(type))
        s = _mm256_maddubs_epi16(_mm256_abs_epi8(*w), _mm256_sign_epi8(vi_broadcast(q), *w));
    else
        s = _mm256_maddubs_epi16(*w, vi_broadcast(q));
    for (int i = 1; i < n; i++)
        s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w[i], vi_broadcast(q + 4 * i)));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(s, ones));
}
#endif

struct prefetch {
    const uint8_t *at;
};

INLINE struct prefetch prefetch_from(const uint8_t *at, size_t left, size_t group, const int groups)
{
    return (struct prefetch){at + PREFETCH_AVX2_GEMM};
}

INLINE void prefetch_part(const struct prefetch *a, const int groups, const int bytes, const int i,
                          const int parts)
{
    for (int k = 0; k < bytes; k += 64)
        _mm_prefetch((const char *)a->at + k, _MM_HINT_T1);
}

#include "engine/device/cpu/kernels/dot.inc"

#include "engine/device/cpu/kernels/sums_avx2.h"
#define UNEVEN 1
#include "engine/device/cpu/kernels/uneven.inc"

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
        tq2_sums(data + 32 * (2 * j), a, sum + j);
    else if (type == DTYPE_TQ1_0 && j == 0)
        ternary_sums(data, a, sum);
    else if (type == DTYPE_Q2_K && j % 4 == 0)
        q2_k_pairs(data + 32 * (4 + 2 * j), a, sum + j);
    else if (type == DTYPE_Q3_K && j == 0)
        q3_k_pairs(data, a, sum);
}

INLINE bool is_whole(enum dtype type)
{
    return is_together(type) || is_codebook(type) || is_uneven(type);
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
    if (type == DTYPE_IQ3_KT)
        return add_block(type, &b, vi_to_vf(magnitude_sum(data, j, a)), a, acc);
    if (!is_codebook(type)) {
        unpack(type, data, VL, 0, j, b.w);
        block_step(type, &b, 1, a, 1, (vf(*)[GROUPS]) & acc);
        return acc;
    }
    if (j == 0)
        join_numbers(type, data, sb->points);
    codebook_sums(type, data, j, (const uint16_t(*)[2 * VL]) sb->points, a, half);
    if (!format_of[type].halves)
        return add_block(type, &b, vi_to_vf(vi_add(half[0], half[1])), a, acc);
    sum = add_half(&b, 1, half[1], add_half(&b, 0, half[0], vf_set1(0.0f)));
    return add_block(type, &b, sum, a, acc);
}

/* 4 to 6 GB/s from the cache: reading several groups in parallel gains nothing */
#define ALONE(type) is_codebook(type)
#include "engine/device/cpu/kernels/gemv.inc"

#if defined(__AVXVNNI__)
#define DOT(name) dot_##name##_avxvnni
#define GEMV(name) gemv_##name##_avxvnni
/* values take their time, not products: 5 to 9 % more than with an instruction for these */
#define SHARED(type) is_slow(type)
#define SHARED_GEMV(name) gemv_##name##_avx2
#else
#define DOT(name) dot_##name##_avx2
#define GEMV(name) gemv_##name##_avx2
#endif
#include "engine/device/cpu/kernels/formats_rows8.inc"
#endif
