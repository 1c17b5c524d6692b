/* AVX-512 dot products of the formats in formats.h: 16 rows, one a lane, as kernels_avx512.c does
 * for Q8_0 and Q4_0. The unpacking of the bits, the only part that differs, is done once for all
 * tokens of a panel. */
#include "engine/device/cpu/kernels/formats.h"

#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/prefetch_avx512.h"
#include "engine/device/cpu/kernels/quarters_avx512.h"
#include "engine/device/cpu/kernels/unpack_avx512.h"

INLINE __m512i broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}

/* Words from .. from+3 or all eight (`count`) of ng groups with nt tokens into integer sums that
 * begin at `start` (one a token). The chains of all nt * ng sums stand side by side, as in
 * kernels_avx512.c. */
INLINE void sums(const struct unpacked_block *b, const int ng, const struct act_block *a,
                 const int nt, int from, const int count, __m512i s[][2])
{
#pragma GCC unroll 8
    for (int k = from; k < from + count; k++)
#pragma GCC unroll 4
        for (int t = 0; t < nt; t++) {
            __m512i x = broadcast(a[t].q + 4 * k);

            for (int g = 0; g < ng; g++)
                s[t][g] = _mm512_dpbusd_epi32(s[t][g], b[g].w[k], x);
        }
}

INLINE int32_t start_of(enum dtype type, const struct act_block *a)
{
    return type == DTYPE_Q5_0 ? 2 * a->m8 : type == DTYPE_IQ4_NL ? a->m128 : 0;
}

/* Bytes of a superblock of 16 rows, and of a block's share of it, head included. */
INLINE size_t superblock_bytes(enum dtype type)
{
    return (size_t)((format_head(type) + format_blocks(type) * format_block_bytes(type)) * 16);
}

INLINE int block_share(enum dtype type)
{
    return format_block_bytes(type) * 16 + format_head(type) * 16 / format_blocks(type);
}

/* What a block's integer sum adds to a token's sum: scaled, and the block's minimum taken into
 * account. */
INLINE __m512 add_block(enum dtype type, const struct unpacked_block *b, __m512 f,
                        const struct act_block *a, __m512 acc)
{
    __m512 d = _mm512_set1_ps(a->d);

    acc = _mm512_fmadd_ps(f, _mm512_mul_ps(b->d, d), acc);
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
        acc = _mm512_fmadd_ps(_mm512_set1_ps(a->fsum), _mm512_mul_ps(b->m, d), acc);
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K)
        acc = _mm512_fnmadd_ps(_mm512_set1_ps(a->fsum), _mm512_mul_ps(b->m, d), acc);
    return acc;
}

/* One block, unpacked, for a few tokens. */
INLINE void block_step(enum dtype type, const struct unpacked_block *b, const int ng,
                       const struct act_block *a, const int nt, __m512 acc[][2])
{
    __m512i s[KERNEL_SMALL_BATCH][2];
    __m512 f[KERNEL_SMALL_BATCH][2];

    for (int half = 0; half < (type == DTYPE_Q6_K ? 2 : 1); half++) {
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++)
                s[t][g] = _mm512_set1_epi32(type == DTYPE_Q6_K
                                                ? -32 * (half ? a[t].sum - a[t].low : a[t].low)
                                                : start_of(type, &a[t]));
        sums(b, ng, a, nt, 4 * half, type == DTYPE_Q6_K ? 4 : 8, s);
        /* Q6_K: the halves' sums and their products with the scales are integers below 2^24, which
         * F32 holds exactly. */
        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++) {
                __m512 x = _mm512_cvtepi32_ps(s[t][g]);

                f[t][g] = type != DTYPE_Q6_K ? x
                          : half             ? _mm512_fmadd_ps(x, b[g].f1, f[t][g])
                                             : _mm512_mul_ps(x, b[g].f0);
            }
    }
    for (int t = 0; t < nt; t++)
        for (int g = 0; g < ng; g++)
            acc[t][g] = add_block(type, &b[g], f[t][g], &a[t], acc[t][g]);
}

/* The same for up to KERNEL_SMALL_BATCH tokens of two groups, each pair of words unpacked where it
 * is used; not for Q6_K. */
INLINE void packed_step(enum dtype type, const uint8_t *data, size_t next,
                        struct unpacked_block b[2], const struct act_block *a, const int nt,
                        const struct prefetch *ahead, const int bytes, __m512 acc[][2])
{
    __m512i s[KERNEL_SMALL_BATCH][2];

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        s[t][0] = s[t][1] = _mm512_set1_epi32(start_of(type, &a[t]));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i low[2], high[2];

        prefetch_part(ahead, 2, bytes, k, 4);
        for (int g = 0; g < 2; g++)
            unpack_two(type, data + (size_t)g * next, k, &low[g], &high[g]);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i x = broadcast(a[t].q + 4 * k);

            for (int g = 0; g < 2; g++)
                s[t][g] = _mm512_dpbusd_epi32(s[t][g], low[g], x);
        }
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i x = broadcast(a[t].q + 16 + 4 * k);

            for (int g = 0; g < 2; g++)
                s[t][g] = _mm512_dpbusd_epi32(s[t][g], high[g], x);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int g = 0; g < 2; g++)
            acc[t][g] = add_block(type, &b[g], _mm512_cvtepi32_ps(s[t][g]), &a[t], acc[t][g]);
}

/* Where reading stands in ng groups that lie `bytes` apart: at block j of a superblock, whose
 * scales are at hand. */
struct reader {
    const uint8_t *superblock;
    int j;
    struct superblock_scales scales[2];
};

INLINE void reader_load(enum dtype type, struct reader *r, const int ng, size_t bytes)
{
    for (int g = 0; g < ng; g++)
        read_superblock_scales(type, r->superblock + (size_t)g * bytes, &r->scales[g]);
}

/* To block b of the groups. */
INLINE void reader_seek(enum dtype type, struct reader *r, const uint8_t *group, const int ng,
                        size_t bytes, int b)
{
    r->superblock = group + (size_t)(b / format_blocks(type)) * superblock_bytes(type);
    r->j = b % format_blocks(type);
    reader_load(type, r, ng, bytes);
}

INLINE const uint8_t *reader_data(enum dtype type, const struct reader *r)
{
    return r->superblock + format_head(type) * 16 + r->j * format_block_bytes(type) * 16;
}

/* On to the next block, where one follows. */
INLINE void reader_step(enum dtype type, struct reader *r, const int ng, size_t bytes, bool follows)
{
    if (++r->j < format_blocks(type) || !follows)
        return;
    r->j = 0;
    r->superblock += superblock_bytes(type);
    reader_load(type, r, ng, bytes);
}

/* Two groups by nt (a constant, at most KERNEL_SMALL_BATCH; 4 with Q6_K) tokens, whose sums stay in
 * registers. */
INLINE void dot_small_batch(enum dtype type, const uint8_t *group, int n, const struct act_block *a,
                            const int nt, float *out, ptrdiff_t stride)
{
    const int share = block_share(type);
    const size_t next = superblock_bytes(type) * (size_t)(n / format_blocks(type));
    __m512 acc[KERNEL_SMALL_BATCH][2], saved[KERNEL_SMALL_BATCH][2][2];
    struct reader r;

    for (int quarter = 0; quarter < 4; quarter++) {
        int begin = (int)((int64_t)quarter * n / 4), end = (int)((int64_t)(quarter + 1) * n / 4);

#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            acc[t][0] = acc[t][1] = _mm512_setzero_ps();
        reader_seek(type, &r, group, 2, next, begin);
        for (int at = begin; at < end; at++, a += nt) {
            const uint8_t *data = reader_data(type, &r);
            struct prefetch ahead = prefetch_from(data, (size_t)(n - at) * (size_t)share, next, 2);
            struct unpacked_block b[2];

            for (int g = 0; g < 2; g++) {
                read_block_scales(type, &r.scales[g], r.j, &b[g]);
                if (type == DTYPE_Q6_K)
                    unpack(type, data + (size_t)g * next, b[g].w);
            }
            reader_step(type, &r, 2, next, at + 1 < end);
            if (type == DTYPE_Q6_K) {
                prefetch_part(&ahead, 2, share, 0, 1);
                block_step(type, b, 2, a, nt, acc);
            } else {
                packed_step(type, data, next, b, a, nt, &ahead, share, acc);
            }
        }
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            keep_quarter(quarter, acc[t], saved[t], 2, out + t * stride);
    }
}

/* A block, unpacked, for any number of tokens. */
INLINE void block_tokens(enum dtype type, const struct unpacked_block *b, const int ng,
                         const struct act_block *a, int nt, __m512 acc[][2])
{
    int t = 0;

    for (; t + 4 <= nt; t += 4)
        block_step(type, b, ng, a + t, 4, acc + t);
    if (nt - t == 3)
        block_step(type, b, ng, a + t, 3, acc + t);
    else if (nt - t == 2)
        block_step(type, b, ng, a + t, 2, acc + t);
    else if (nt - t == 1)
        block_step(type, b, ng, a + t, 1, acc + t);
}

/* ng (1 or 2) groups by any number of tokens, whose sums stay in the first-level cache. */
INLINE void dot_panel(enum dtype type, const uint8_t *group, const int ng, int n,
                      const struct act_block *a, int nt, float *out, ptrdiff_t stride)
{
    const int share = block_share(type);
    const size_t next = superblock_bytes(type) * (size_t)(n / format_blocks(type));
    __m512 acc[KERNEL_TILE][2], saved[KERNEL_TILE][2][2];
    struct reader r;

    for (int quarter = 0; quarter < 4; quarter++) {
        int begin = (int)((int64_t)quarter * n / 4), end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int t = 0; t < nt; t++)
            for (int g = 0; g < ng; g++)
                acc[t][g] = _mm512_setzero_ps();
        reader_seek(type, &r, group, ng, next, begin);
        for (int at = begin; at < end; at++, a += nt) {
            const uint8_t *data = reader_data(type, &r);
            struct prefetch ahead = prefetch_from(data, (size_t)(n - at) * (size_t)share, next, ng);
            struct unpacked_block b[2];

            for (int g = 0; g < ng; g++)
                read_block(type, data + (size_t)g * next, &r.scales[g], r.j, &b[g]);
            reader_step(type, &r, ng, next, at + 1 < end);
            prefetch_part(&ahead, ng, share, 0, 1);
            block_tokens(type, b, ng, a, nt, acc);
        }
        for (int t = 0; t < nt; t++)
            keep_quarter(quarter, acc[t], saved[t], ng, out + t * stride);
    }
}

/* Two groups. Q6_K unpacks before it multiplies, which leaves registers for four tokens. */
INLINE void dot_pair(enum dtype type, const uint8_t *at, int n, const struct act_block *panel,
                     int nt, float *out, ptrdiff_t stride)
{
    switch (type == DTYPE_Q6_K && nt > 4 ? 0 : nt) {
    case 1: dot_small_batch(type, at, n, panel, 1, out, stride); break;
    case 2: dot_small_batch(type, at, n, panel, 2, out, stride); break;
    case 3: dot_small_batch(type, at, n, panel, 3, out, stride); break;
    case 4: dot_small_batch(type, at, n, panel, 4, out, stride); break;
    case 5: dot_small_batch(type, at, n, panel, 5, out, stride); break;
    case 6: dot_small_batch(type, at, n, panel, 6, out, stride); break;
    default: dot_panel(type, at, 2, n, panel, nt, out, stride); break;
    }
}

INLINE void dot_any(enum dtype type, const uint8_t *at, int groups, int cols,
                    const struct act_block *panel, int nt, float *out, ptrdiff_t stride)
{
    size_t bytes = dtype_row_bytes(type, cols) * 16;
    int n = cols / NUM_BLOCK;

    for (; groups >= 2; groups -= 2, at += 2 * bytes, out += 32)
        dot_pair(type, at, n, panel, nt, out, stride);
    if (groups)
        dot_panel(type, at, 1, n, panel, nt, out, stride);
}

#define X(type, name, blocks, head, bytes)                                                  \
    void format_##name##_avx512(const void *weights, int groups, int width, int cols,       \
                                const struct act_block *panel, int nt, float *out,          \
                                ptrdiff_t out_stride)                                       \
    {                                                                                       \
        if (width == 16)                                                                    \
            dot_any(type, weights, groups, cols, panel, nt, out, out_stride);               \
        else                                                                                \
            format_##name##_avx2(weights, groups, width, cols, panel, nt, out, out_stride); \
    }
FORMATS(X)
#undef X
#endif
