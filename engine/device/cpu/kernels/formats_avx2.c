/* AVX2 dot products of the formats in formats.h: eight rows, one a lane. Bytes are multiplied by
 * maddubs, whose 16-bit pair sums must not saturate: each format adds up as many words as its
 * largest code allows before widening. formats_avxvnni.c compiles this text a second time, with an
 * instruction that adds to 32 bits at once. */
#include "engine/device/cpu/kernels/formats.h"

#if defined(__AVX2__)
#include "engine/device/cpu/kernels/prefetch.h"
#include "engine/file/blocks.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

struct superblock_scales {
    __m256 d, m;
    __m256i scales[2], mins[2];
    __m256i halves[4];
};

INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}

INLINE __m256 halves_at(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

/* `first`: the row of the group that lane 0 takes. */
INLINE void read_superblock_scales(enum dtype type, const uint8_t *superblock, int width, int first,
                                   struct superblock_scales *sb)
{
    sb->d = halves_at(superblock + 2 * first);
    if (format_has_min(type))
        sb->m = halves_at(superblock + 2 * width + 2 * first);
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
        const uint8_t *p = superblock + 4 * width + 4 * first;
        __m256i s = load(p), m = load(p + 4 * width), both = load(p + 8 * width);
        __m256i six = _mm256_set1_epi8(63), four = _mm256_set1_epi8(15), top = _mm256_set1_epi8(48);

        sb->scales[0] = _mm256_and_si256(s, six);
        sb->mins[0] = _mm256_and_si256(m, six);
        sb->scales[1] = _mm256_or_si256(_mm256_and_si256(both, four),
                                        _mm256_and_si256(_mm256_srli_epi16(s, 2), top));
        sb->mins[1] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(both, 4), four),
                                      _mm256_and_si256(_mm256_srli_epi16(m, 2), top));
    }
    if (type == DTYPE_Q6_K)
        for (int k = 0; k < 4; k++)
            sb->halves[k] = load(superblock + 2 * width + 4 * (k * width + first));
}

INLINE __m256 byte_of(__m256i x, int j)
{
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(8 * j)), _mm256_set1_epi32(255)));
}

INLINE __m256 signed_byte_of(__m256i x, int j)
{
    return _mm256_cvtepi32_ps(
        _mm256_srai_epi32(_mm256_sll_epi32(x, _mm_cvtsi32_si128(24 - 8 * j)), 24));
}

/* 32 mask bits to 16 in the bytes they stand for. */
INLINE __m256i sixteens(const uint8_t *p)
{
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                       0x0303030303030303),
            x;
    int32_t mask;

    memcpy(&mask, p, 4);
    x = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), order), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(x, bit), _mm256_set1_epi8(16));
}

/* The eight words of a block: unsigned bytes; IQ4_NL's signed values where AVX-VNNI is missing. */
INLINE void unpack(enum dtype type, const uint8_t *block, int width, int first, __m256i w[8])
{
    const uint8_t *payload = block + (format_block_bytes(type) - 16) * width + 4 * first;
    __m256i nibble = _mm256_set1_epi8(15);

    for (int k = 0; k < 4; k++) {
        __m256i x = load(payload + 4 * k * width);

        w[k] = _mm256_and_si256(x, nibble);
        w[4 + k] = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
    }
    if (type == DTYPE_IQ4_NL) {
        __m256i table = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const void *)blocks_iq4_values));

#if defined(__AVXVNNI__)
        table = _mm256_xor_si256(table, _mm256_set1_epi8((char)0x80));
#endif
        for (int k = 0; k < 8; k++)
            w[k] = _mm256_shuffle_epi8(table, w[k]);
    }
    if (format_has_high(type))
        for (int k = 0; k < 8; k++)
            w[k] = _mm256_or_si256(w[k], sixteens(block + k * width / 2 + first / 2));
    if (type == DTYPE_Q6_K) {
        __m256i top = _mm256_set1_epi8(48);

        for (int h = 0; h < 2; h++) {
            __m256i x = load(block + 4 * (h * width + first));

            w[4 * h] = _mm256_or_si256(w[4 * h], _mm256_and_si256(_mm256_slli_epi16(x, 4), top));
            w[4 * h + 1] = _mm256_or_si256(w[4 * h + 1],
                                           _mm256_and_si256(_mm256_slli_epi16(x, 2), top));
            w[4 * h + 2] = _mm256_or_si256(w[4 * h + 2], _mm256_and_si256(x, top));
            w[4 * h + 3] = _mm256_or_si256(w[4 * h + 3],
                                           _mm256_and_si256(_mm256_srli_epi16(x, 2), top));
        }
    }
}

INLINE __m256i broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

#if defined(__AVXVNNI__)
/* Words from .. to-1 and a start. */
INLINE __m256i sum_words(const __m256i w[8], const struct act_block *a, int from, int to, int start)
{
    __m256i total = _mm256_set1_epi32(start);

    for (int k = from; k < to; k++)
        total = _mm256_dpbusd_avx_epi32(total, w[k], broadcast(a->q + 4 * k));
    return total;
}

INLINE __m256 block_sum(enum dtype type, const __m256i w[8], const struct act_block *a, __m256 f0,
                        __m256 f1)
{
    if (type == DTYPE_Q6_K) {
        __m256i s0 = sum_words(w, a, 0, 4, -32 * a->low),
                s1 = sum_words(w, a, 4, 8, -32 * (a->sum - a->low));

        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(s1), f1,
                               _mm256_mul_ps(_mm256_cvtepi32_ps(s0), f0));
    }
    return _mm256_cvtepi32_ps(sum_words(w, a, 0, 8,
                                        type == DTYPE_IQ4_NL ? a->m128
                                        : type == DTYPE_Q5_0 ? 2 * a->m8
                                                             : 0));
}
#else
/* Words from .. to-1, `step` of them added in 16 bits. */
INLINE __m256i sum_words(const __m256i w[8], const struct act_block *a, int from, int to, int step)
{
    __m256i total = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);

    for (int k = from; k < to; k += step) {
        __m256i s = _mm256_maddubs_epi16(w[k], broadcast(a->q + 4 * k));

        for (int i = 1; i < step; i++)
            s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w[k + i], broadcast(a->q + 4 * (k + i))));
        total = _mm256_add_epi32(total, _mm256_madd_epi16(s, ones));
    }
    return total;
}

INLINE __m256 block_sum(enum dtype type, const __m256i w[8], const struct act_block *a, __m256 f0,
                        __m256 f1)
{
    __m256i s, ones = _mm256_set1_epi16(1);

    /* 2 words * 2 * 63 * 127 < 2^15; see formats_avx512.c for the exactness of the rest */
    if (type == DTYPE_Q6_K) {
        __m256i s0 = _mm256_sub_epi32(sum_words(w, a, 0, 4, 2), _mm256_set1_epi32(32 * a->low));
        __m256i s1 = _mm256_sub_epi32(sum_words(w, a, 4, 8, 2),
                                      _mm256_set1_epi32(32 * (a->sum - a->low)));

        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(s1), f1,
                               _mm256_mul_ps(_mm256_cvtepi32_ps(s0), f0));
    }
    if (type == DTYPE_IQ4_NL) {
        s = _mm256_setzero_si256();
        for (int k = 0; k < 8; k++)
            s = _mm256_add_epi32(
                s, _mm256_madd_epi16(
                       _mm256_maddubs_epi16(_mm256_abs_epi8(w[k]),
                                            _mm256_sign_epi8(broadcast(a->q + 4 * k), w[k])),
                       ones));
        return _mm256_cvtepi32_ps(s);
    }
    /* 4 * 2 * 31 * 127 and 8 * 2 * 15 * 127 < 2^15 */
    s = sum_words(w, a, 0, 8, format_has_high(type) ? 4 : 8);
    if (type == DTYPE_Q5_0)
        s = _mm256_add_epi32(s, _mm256_set1_epi32(2 * a->m8));
    return _mm256_cvtepi32_ps(s);
}

#endif

INLINE void dot_half(enum dtype type, const uint8_t *group, int width, int first, int n,
                     const struct act_block *a, const int nt, float *out, ptrdiff_t stride)
{
    const int per = format_blocks(type), head_bytes = format_head(type) * width,
              block_bytes = format_block_bytes(type) * width;
    __m256 acc[KERNEL_TILE], saved[2][KERNEL_TILE];
    struct superblock_scales sb = {.d = _mm256_setzero_ps(), .m = _mm256_setzero_ps()};

    for (int quarter = 0; quarter < 4; quarter++) {
        int begin = (int)((int64_t)quarter * n / 4), end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int t = 0; t < nt; t++)
            acc[t] = _mm256_setzero_ps();
        for (int b = begin; b < end; b++, a += nt) {
            int j = b % per;
            const uint8_t *superblock = group + (size_t)(b / per) *
                                                    (size_t)(head_bytes + per * block_bytes),
                          *block = superblock + head_bytes + j * block_bytes;
            __m256 dw, m = _mm256_setzero_ps(), f0 = m, f1 = m;
            __m256i w[8];

            if (per == 1 || j == 0 || b == begin)
                read_superblock_scales(type, superblock, width, first, &sb);
            dw = sb.d;
            if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
                m = sb.m;
            if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
                dw = _mm256_mul_ps(sb.d, byte_of(sb.scales[j / 4], j & 3));
                m = _mm256_xor_ps(_mm256_mul_ps(sb.m, byte_of(sb.mins[j / 4], j & 3)),
                                  _mm256_set1_ps(-0.0f));
            }
            if (type == DTYPE_Q6_K) {
                f0 = signed_byte_of(sb.halves[j / 2], j % 2 * 2);
                f1 = signed_byte_of(sb.halves[j / 2], j % 2 * 2 + 1);
            }
            if (nt <= 2)
                for (int i = 0; i < block_bytes; i += 64)
                    _mm_prefetch((const char *)block + PREFETCH_AVX2_GEMM + i, _MM_HINT_T1);
            unpack(type, block, width, first, w);
            for (int t = 0; t < nt; t++) {
                __m256 da = _mm256_set1_ps(a[t].d);

                acc[t] = _mm256_fmadd_ps(block_sum(type, w, a + t, f0, f1), _mm256_mul_ps(dw, da),
                                         acc[t]);
                if (format_has_min(type))
                    acc[t] = _mm256_fmadd_ps(_mm256_set1_ps((float)a[t].sum), _mm256_mul_ps(m, da),
                                             acc[t]);
            }
        }
        for (int t = 0; t < nt; t++) {
            if (quarter == 0 || quarter == 2)
                saved[quarter / 2][t] = acc[t];
            else if (quarter == 1)
                saved[0][t] = _mm256_add_ps(saved[0][t], acc[t]);
            else
                _mm256_storeu_ps(out + t * stride + first,
                                 _mm256_add_ps(saved[0][t], _mm256_add_ps(saved[1][t], acc[t])));
        }
    }
}

#if defined(__AVXVNNI__)
#define FORMAT(name) format_##name##_avxvnni
#else
#define FORMAT(name) format_##name##_avx2
#endif
#define X(type, name, blocks, head, bytes)                                                     \
    void FORMAT(name)(const void *weights, int groups, int width, int cols,                    \
                      const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride) \
    {                                                                                          \
        const uint8_t *group = weights;                                                        \
                                                                                               \
        for (int g = 0; g < groups;                                                            \
             g++, group += dtype_row_bytes(type, cols) * (size_t)width, out += width)          \
            for (int first = 0; first < width; first += 8) {                                   \
                if (nt == 1)                                                                   \
                    dot_half(type, group, width, first, cols / NUM_BLOCK, panel, 1, out,       \
                             out_stride);                                                      \
                else                                                                           \
                    dot_half(type, group, width, first, cols / NUM_BLOCK, panel, nt, out,      \
                             out_stride);                                                      \
            }                                                                                  \
    }
FORMATS(X)
#undef X
#endif
