/* AVX2 kernels (with FMA and F16C): 8 rows a lane set; groups of 16 rows are done as two halves.
 * Compiled with its own flags; called only where select.c found the instructions. kernels_avxvnni.c
 * compiles this text a second time, where four products of bytes and their sum are one instruction.
 */
#include "engine/device/cpu/kernels/formats.h"

#if defined(__AVX2__)
#include <immintrin.h>
#include <string.h>

#define VL 8
#define QUERY_TILE_SMALL 4
#define QUERY_TILE_SMALL_QUARTERS 1
#define QUERY_TILE_SMALL_VECTORS 2
#define QUERY_TILE_LARGE 6
#define QUERY_TILE_LARGE_QUARTERS 1
#define QUERY_TILE_LARGE_VECTORS 2
#define FLOAT_TOKENS 3
#define FLOAT_NATIVE false

typedef __m256 vf;

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

static inline float vf_sum(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* 2^n from the low bits of t = n + magic. */
static inline vf vf_exp_scale(vf t)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23));
}

static inline vf vf_zero_below(vf y, vf x, float limit)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_NLT_UQ), y);
}

static inline vf vf_recip_start(vf x)
{
    __m256i u = _mm256_castps_si256(x), sign = _mm256_set1_epi32((int)0x80000000u);

    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_sub_epi32(_mm256_set1_epi32(0x7ef311c7),
                                                                _mm256_andnot_si256(sign, u)),
                                               _mm256_and_si256(u, sign)));
}

static inline vf vf_from_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
static inline vf vf_from_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
static inline vf vf_from_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

/* The odd and the even ones of 16 BF16 numbers. No instruction multiplies them in pairs. */
static inline vf vf_from_odd(const void *p)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_loadu_si256(p), _mm256_set1_epi32((int)0xffff0000u)));
}
static inline vf vf_from_even(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p), 16));
}
static inline vf vf_pairs(vf w, vf x, vf sum)
{
    return sum;
}

/* n F16 numbers as floats. */
static inline void vec_halves(const void *p, int n, float *out)
{
    const uint16_t *h = p;

    for (; n >= 4; n -= 4, h += 4, out += 4)
        _mm_storeu_ps(out, _mm_cvtph_ps(_mm_loadl_epi64((const void *)h)));
    for (; n > 0; n--, h++, out++)
        *out = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(*h)));
}

/* Lane j += lane j + s for s = 4, 2, 1. */
static inline float vf_fold(vf x)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline float vf_largest(vf x)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

static void to_f16(const float *x, int n, uint16_t *out)
{
    int i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    kernels_scalar.to_f16(x + i, n - i, out + i);
}

#include "engine/device/cpu/kernels/vector.inc"

static inline int sum_epi32(__m256i v)
{
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

static void quantise(const float *x, int cols, struct act_block *out, int stride)
{
    __m256 sign = _mm256_set1_ps(-0.0f), low = _mm256_set1_ps(-127.0f),
           top = _mm256_set1_ps(127.0f);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

    for (int b = 0; b < cols / NUM_BLOCK; b++, x += NUM_BLOCK, out += stride) {
        __m256 m = _mm256_setzero_ps(), iv;
        __m256i q[4];
        __m128 h;
        float amax, d;

        for (int i = 0; i < 4; i++)
            m = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + 8 * i)), m);
        h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
        h = _mm_max_ps(h, _mm_movehl_ps(h, h));
        amax = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
        if (!(amax >= 5.42101086e-20f) || amax > 1e30f) {
            memset(out, 0, sizeof *out);
            continue;
        }
        d = amax * (1.0f / 127.0f);
        iv = _mm256_set1_ps(num_recip(d));
        for (int i = 0; i < 4; i++) {
            __m256 y = _mm256_max_ps(
                low, _mm256_min_ps(top, _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), iv)));

            q[i] = _mm256_cvtps_epi32(_mm256_and_ps(y, _mm256_cmp_ps(y, y, _CMP_ORD_Q)));
        }
        out->d = d;
        out->low = sum_epi32(_mm256_add_epi32(q[0], q[1]));
        out->sum = out->low + sum_epi32(_mm256_add_epi32(q[2], q[3]));
        out->m8 = out->sum * -8;
        out->m128 = out->sum * -128;
        out->fsum = (float)out->sum;
        q[0] = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256((void *)out->q, _mm256_permutevar8x32_epi32(q[0], order));
    }
}

static inline __m256i broadcast(const int8_t *p)
{
    int32_t x;

    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

/* The eight weight words of one block and eight rows: unsigned, but for Q8_0 without AVX-VNNI.
 * `step`: bytes from a row's word to its next. */
INLINE void unpack(enum dtype type, const uint8_t *payload, int step, __m256i w[8])
{
    if (type == DTYPE_Q8_0) {
#if defined(__AVXVNNI__)
        __m256i flip = _mm256_setzero_si256();
#else
        __m256i flip = _mm256_set1_epi8((char)0x80);
#endif

        for (int k = 0; k < 8; k++)
            w[k] = _mm256_xor_si256(_mm256_loadu_si256((const void *)(payload + k * step)), flip);
    } else {
        __m256i nibble = _mm256_set1_epi8(15);

        for (int k = 0; k < 4; k++) {
            __m256i x = _mm256_loadu_si256((const void *)(payload + k * step));

            w[k] = _mm256_and_si256(x, nibble);
            w[4 + k] = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        }
    }
}

#if defined(__AVXVNNI__)
INLINE __m256i block_sum(enum dtype type, const __m256i w[8], const struct act_block *a)
{
    __m256i s = _mm256_set1_epi32(type == DTYPE_Q8_0 ? a->m128 : a->m8);

    for (int k = 0; k < 8; k++)
        s = _mm256_dpbusd_avx_epi32(s, w[k], broadcast(a->q + 4 * k));
    return s;
}
#else
/* Pair sums stay below 2^15: 8 words * 2 * 15 * 127 for Q4_0; for Q8_0 one word's 2 * 128 * 127, so
 * those are widened word by word. */
INLINE __m256i block_sum(enum dtype type, const __m256i w[8], const struct act_block *a)
{
    __m256i ones = _mm256_set1_epi16(1), s;

    if (type == DTYPE_Q8_0) {
        s = _mm256_setzero_si256();
        for (int k = 0; k < 8; k++)
            s = _mm256_add_epi32(
                s, _mm256_madd_epi16(
                       _mm256_maddubs_epi16(_mm256_abs_epi8(w[k]),
                                            _mm256_sign_epi8(broadcast(a->q + 4 * k), w[k])),
                       ones));
        return s;
    }
    s = _mm256_maddubs_epi16(w[0], broadcast(a->q));
    for (int k = 1; k < 8; k++)
        s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w[k], broadcast(a->q + 4 * k)));
    return _mm256_add_epi32(_mm256_madd_epi16(s, ones), _mm256_set1_epi32(a->m8));
}

#endif

INLINE void dot_half(enum dtype type, const uint8_t *group, int width, int first, int n,
                     const struct act_block *a, const int nt, float *out, ptrdiff_t stride)
{
    const size_t bytes = (size_t)(type == DTYPE_Q8_0 ? 34 : 18) * (size_t)width;
    __m256 acc[KERNEL_TILE], saved[2][KERNEL_TILE];

    for (int quarter = 0; quarter < 4; quarter++) {
        int end = (int)((int64_t)(quarter + 1) * n / 4);

        for (int t = 0; t < nt; t++)
            acc[t] = _mm256_setzero_ps();
        for (int b = (int)((int64_t)quarter * n / 4); b < end; b++, group += bytes, a += nt) {
            __m256 dw = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(group + 2 * first)));
            __m256i w[8];

            if (nt <= 2)
                for (size_t i = 0; i < bytes; i += 64)
                    _mm_prefetch((const char *)group + PREFETCH_AVX2_GEMM + i, _MM_HINT_T1);
            unpack(type, group + 2 * width + 4 * first, 4 * width, w);
            for (int t = 0; t < nt; t++)
                acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(block_sum(type, w, a + t)),
                                         _mm256_mul_ps(dw, _mm256_set1_ps(a[t].d)), acc[t]);
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

INLINE void dot_any(enum dtype type, const uint8_t *group, int groups, int width, int cols,
                    const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    for (int g = 0; g < groups;
         g++, group += dtype_row_bytes(type, cols) * (size_t)width, out += width)
        for (int first = 0; first < width; first += 8) {
            if (nt == 1)
                dot_half(type, group, width, first, cols / NUM_BLOCK, panel, 1, out, out_stride);
            else
                dot_half(type, group, width, first, cols / NUM_BLOCK, panel, nt, out, out_stride);
        }
}

static void dot_q8_0(const void *weights, int groups, int width, int cols,
                     const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    dot_any(DTYPE_Q8_0, weights, groups, width, cols, panel, nt, out, out_stride);
}

static void dot_q4_0(const void *weights, int groups, int width, int cols,
                     const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    dot_any(DTYPE_Q4_0, weights, groups, width, cols, panel, nt, out, out_stride);
}

static uint64_t read_all(const void *p, size_t n)
{
    const char *at = p;
    __m256i s[4];

    for (int k = 0; k < 4; k++)
        s[k] = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 128)
        for (int k = 0; k < 4; k++) {
            if (!(k & 1))
                _mm_prefetch(at + i + 32 * k + PREFETCH_READ, _MM_HINT_T0);
            s[k] = _mm256_add_epi64(s[k], _mm256_loadu_si256((const void *)(at + i + 32 * k)));
        }
    return (uint64_t)sum_epi32(
        _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3])));
}

#if defined(__AVXVNNI__)
static double peak_int8(void)
{
    volatile int seed = 3;
    __m256i a[12], b = _mm256_set1_epi32(seed), c = _mm256_set1_epi32(seed + 1);

    for (int k = 0; k < 12; k++)
        a[k] = _mm256_setzero_si256();
    for (int i = 0; i < 1 << 20; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++)
            a[k] = _mm256_dpbusd_avx_epi32(a[k], b, c);
    }
    for (int k = 0; k < 12; k++)
        seed = sum_epi32(a[k]);
    return 12.0 * 64 * (1 << 20);
}

const struct kernels kernels_avxvnni = {
    .name = "avxvnni",
    .width = 8,
    .tile = 24,
    .quantise = quantise,
    .dot = {[DTYPE_Q8_0] = dot_q8_0, [DTYPE_Q4_0] = dot_q4_0, FORMAT_DOTS(avxvnni)},
    VECTOR_KERNELS,
};
#else
static double peak_int8(void)
{
    volatile int seed = 3;
    __m256i a[8], b = _mm256_set1_epi32(seed), c = _mm256_set1_epi32(seed + 1),
                  ones = _mm256_set1_epi16((short)seed);

    for (int k = 0; k < 8; k++)
        a[k] = _mm256_set1_epi32(seed + k);
    for (int i = 0; i < 1 << 20; i++) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            /* for all the compiler knows another value: nothing is multiplied once for all */
            __asm__("" : "+x"(b));
            a[k] = _mm256_add_epi32(a[k], _mm256_madd_epi16(_mm256_maddubs_epi16(c, b), ones));
        }
    }
    for (int k = 0; k < 8; k++)
        seed = sum_epi32(a[k]);
    return 8.0 * 64 * (1 << 20);
}

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .width = 8,
    .tile = 24,
    .quantise = quantise,
    .dot = {[DTYPE_Q8_0] = dot_q8_0, [DTYPE_Q4_0] = dot_q4_0, FORMAT_DOTS(avx2)},
    VECTOR_KERNELS,
};
#endif
#endif
