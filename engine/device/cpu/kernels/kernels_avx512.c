/* AVX-512 kernels (F, BW, VL, DQ, VNNI): 16 rows per group, one row per lane, so that no sum ever
 * crosses lanes. Compiled with its own flags; called only if select.c found the instructions. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"

#if defined(__AVX512VNNI__)
#include "engine/device/cpu/kernels/vector_avx512.h"

#define QUERY_TILE_SMALL 4
#define QUERY_TILE_SMALL_QUARTERS 4
#define QUERY_TILE_SMALL_VECTORS 4
#define QUERY_TILE_LARGE 12
#define QUERY_TILE_LARGE_QUARTERS 2
#define QUERY_TILE_LARGE_VECTORS 2
#define LATENT_QUERIES 8
#define LATENT_TOKENS 2
#define LATENT_VECTORS 2
#define FLOAT_TOKENS 6
#define FLOAT_NATIVE __builtin_cpu_supports("avx512bf16")

static void to_f16(const float *x, int n, uint16_t *out)
{
    int i = 0;

    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(out + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(x + i),
                                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    kernels_scalar.to_f16(x + i, n - i, out + i);
}

/* 64 codes of F8, transposed (engine/file/f8.h): out[k] has columns 16k .. 16k+15, each 2^-120
 * times its code's value, because the code's bits are those of such an F32 number. */
INLINE void vf_from_turned_e4m3(const void *p, vf out[4])
{
    const __m512i bits = _mm512_set1_epi32((int)0x87f00000u);
    __m512i x = _mm512_loadu_si512(p), odd = _mm512_srai_epi16(x, 4),
            even = _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 4);

    out[0] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32(even, 16), bits));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32(odd, 16), bits));
    out[2] = _mm512_castsi512_ps(_mm512_and_si512(even, bits));
    out[3] = _mm512_castsi512_ps(_mm512_and_si512(odd, bits));
}

#include "engine/device/cpu/kernels/vector.inc"

/* One folding step merges two vectors into one of half results: the quarters of each, then pairs
 * within a quarter. */
#define FOLD_QUARTERS(op, a, b) \
    op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee))
#define FOLD_QUARTERS2(op, a, b) \
    op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))
#define FOLD_PAIRS(op, a, b) op(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee))
#define FOLD_PAIRS2(op, a, b) op(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd))

static inline __m512 add_integers(__m512 a, __m512 b)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

/* Element i of four vectors side by side, quarter q of out[j]: element 4q + j. */
static inline void side_by_side(__m512i a, __m512i b, __m512i c, __m512i d, __m512i out[4])
{
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d),
            ab2 = _mm512_unpackhi_epi32(a, b), cd2 = _mm512_unpackhi_epi32(c, d);

    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    out[2] = _mm512_unpacklo_epi64(ab2, cd2);
    out[3] = _mm512_unpackhi_epi64(ab2, cd2);
}

/* Quarter i of four vectors into a place of each of the blocks 4i .. 4i + 3. */
#define STORE_QUARTERS(i, v, place)                              \
    for (int j = 0; j < 4; j++)                                  \
    _mm_storeu_si128((void *)&out[(4 * (i) + j) * stride].place, \
                     _mm512_extracti32x4_epi32((v)[j], i))

/* Rule 1 for 16 blocks, whose maxima and sums are folded together, finally one block per lane: an
 * eighth of the shuffles of block after block. Blocks are paired so that lane i is block i. A block
 * of a panel is a cache line that is seldom cached, so it is written by three stores, not by one
 * per field: the store buffer then holds that many more blocks. */
static void quantise16(const float *x, struct act_block *out, int stride)
{
    const __m512i low = _mm512_set1_epi32(0x7fffffff);
    const __m512 top = _mm512_set1_ps(127.0f), bottom = _mm512_set1_ps(-127.0f);
    float inverse[16];
    __m512 m[16], amax, d;
    __m512i lows, highs, sums, v[4];
    __mmask16 valid;

    for (int b = 0; b < 16; b++) { /* max(a, b) is b if a is NaN: a NaN never wins */
        __m512 x0 = _mm512_castsi512_ps(
            _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + 32 * b)), low));
        __m512 x1 = _mm512_castsi512_ps(
            _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + 32 * b + 16)), low));

        m[b] = _mm512_max_ps(x1, _mm512_max_ps(x0, _mm512_setzero_ps()));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* blocks i, 4 + i, 8 + i, 12 + i, one per quarter */
        __m512 a = FOLD_QUARTERS(_mm512_max_ps, m[i], m[4 + i]),
               c = FOLD_QUARTERS(_mm512_max_ps, m[8 + i], m[12 + i]);

        m[i] = FOLD_QUARTERS2(_mm512_max_ps, a, c);
    }
    m[0] = FOLD_PAIRS(_mm512_max_ps, m[0], m[1]);
    m[2] = FOLD_PAIRS(_mm512_max_ps, m[2], m[3]);
    amax = FOLD_PAIRS2(_mm512_max_ps, m[0], m[2]);
    valid = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(5.42101086e-20f), _CMP_GE_OQ) &
            _mm512_cmp_ps_mask(amax, _mm512_set1_ps(1e30f), _CMP_LE_OQ);
    d = _mm512_maskz_mul_ps(valid, amax, _mm512_set1_ps(1.0f / 127.0f));
    _mm512_storeu_ps(inverse, _mm512_maskz_mov_ps(valid, vec_recip(d)));
    for (int b = 0; b < 16; b++) {
        __m512 id = _mm512_set1_ps(inverse[b]), q[2];
        __m128i bytes[2];

        for (int i = 0; i < 2; i++) {
            __m512 y = _mm512_max_ps(
                bottom,
                _mm512_min_ps(top, _mm512_mul_ps(_mm512_loadu_ps(x + 32 * b + 16 * i), id)));
            __m512i n = _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(y, y, _CMP_ORD_Q), y);

            bytes[i] = _mm512_cvtepi32_epi8(n);
            q[i] = _mm512_castsi512_ps(n);
        }
        _mm256_storeu_si256((void *)out[b * stride].q,
                            _mm256_inserti128_si256(_mm256_castsi128_si256(bytes[0]), bytes[1], 1));
        m[b] = FOLD_QUARTERS(add_integers, q[0], q[1]);
    }
    /* Quarters of two folded blocks: low, high of the one, low, high of the other; the pairs are
     * chosen so that the blocks are in order afterwards. */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 a = FOLD_QUARTERS2(add_integers, m[i], m[4 + i]),
               c = FOLD_QUARTERS2(add_integers, m[8 + i], m[12 + i]);

        /* low halves of blocks i, 4 + i, 8 + i, 12 + i */
        m[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        m[4 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
    }
    m[0] = FOLD_PAIRS(add_integers, m[0], m[1]);
    m[2] = FOLD_PAIRS(add_integers, m[2], m[3]);
    lows = _mm512_castps_si512(FOLD_PAIRS2(add_integers, m[0], m[2]));
    m[4] = FOLD_PAIRS(add_integers, m[4], m[5]);
    m[6] = FOLD_PAIRS(add_integers, m[6], m[7]);
    highs = _mm512_castps_si512(FOLD_PAIRS2(add_integers, m[4], m[6]));
    sums = _mm512_add_epi32(lows, highs);
    side_by_side(_mm512_castps_si512(d), sums, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-8)),
                 _mm512_mullo_epi32(sums, _mm512_set1_epi32(-128)), v);
    STORE_QUARTERS(0, v, d);
    STORE_QUARTERS(1, v, d);
    STORE_QUARTERS(2, v, d);
    STORE_QUARTERS(3, v, d);
    side_by_side(lows, _mm512_castps_si512(_mm512_cvtepi32_ps(sums)),
                 _mm512_sub_epi32(_mm512_set1_epi32(SUM_BITS), _mm512_slli_epi32(lows, 5)),
                 _mm512_slli_epi32(_mm512_sub_epi32(lows, sums), 5), v);
    STORE_QUARTERS(0, v, low);
    STORE_QUARTERS(1, v, low);
    STORE_QUARTERS(2, v, low);
    STORE_QUARTERS(3, v, low);
}
_Static_assert(offsetof(struct act_block, m128) == 12 && offsetof(struct act_block, q) == 16 &&
                   offsetof(struct act_block, low) == 48 &&
                   offsetof(struct act_block, fsum) == 52 && offsetof(struct act_block, from) == 56,
               "a block is stored as three pieces");

static void quantise(const float *x, int cols, struct act_block *out, int stride)
{
    __m512i low = _mm512_set1_epi32(0x7fffffff);

    for (; cols >= 16 * NUM_BLOCK; cols -= 16 * NUM_BLOCK, x += 16 * NUM_BLOCK, out += 16 * stride)
        quantise16(x, out, stride);
    for (int b = 0; b < cols / NUM_BLOCK; b++, x += NUM_BLOCK, out += stride) {
        __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16), zero = _mm512_setzero_ps(),
               v[2] = {x0, x1}, iv, top = _mm512_set1_ps(127.0f);
        __m512 m = _mm512_max_ps(
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x0), low)), zero);
        float amax, d;
        int sum = 0;

        m = _mm512_max_ps(_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x1), low)), m);
        amax = _mm512_reduce_max_ps(m);
        if (!(amax >= 5.42101086e-20f) || amax > 1e30f) {
            *out = (struct act_block){.from = {SUM_BITS}};
            continue;
        }
        d = amax * (1.0f / 127.0f);
        iv = _mm512_set1_ps(num_recip(d));
        for (int i = 0; i < 2; i++) {
            __m512 y = _mm512_max_ps(_mm512_set1_ps(-127.0f),
                                     _mm512_min_ps(top, _mm512_mul_ps(v[i], iv)));
            __m512i q = _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(y, y, _CMP_ORD_Q), y);

            _mm_storeu_si128((void *)(out->q + 16 * i), _mm512_cvtepi32_epi8(q));
            sum += _mm512_reduce_add_epi32(q);
            if (i == 0)
                out->low = sum;
        }
        out->d = d;
        out->sum = sum;
        out->m8 = sum * -8;
        out->m128 = sum * -128;
        out->fsum = (float)sum;
        out->from[0] = SUM_BITS - 32 * out->low;
        out->from[1] = -32 * (sum - out->low);
    }
}

static uint64_t read_all(const void *p, size_t n)
{
    const char *at = p;
    __m512i s[4];

    for (int k = 0; k < 4; k++)
        s[k] = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 256)
        for (int k = 0; k < 4; k++) {
            _mm_prefetch(at + i + 64 * k + PREFETCH_READ, _MM_HINT_T0);
            s[k] = _mm512_add_epi64(s[k], _mm512_loadu_si512(at + i + 64 * k));
        }
    return (uint64_t)_mm512_reduce_add_epi64(
        _mm512_add_epi64(_mm512_add_epi64(s[0], s[1]), _mm512_add_epi64(s[2], s[3])));
}

static double peak_int8(void)
{
    volatile int seed = 3;
    __m512i a[12], b = _mm512_set1_epi32(seed), c = _mm512_set1_epi32(seed + 1);

    for (int k = 0; k < 12; k++)
        a[k] = _mm512_setzero_si512();
    for (int i = 0; i < 1 << 20; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++)
            a[k] = _mm512_dpbusd_epi32(a[k], b, c);
    }
    for (int k = 0; k < 12; k++)
        seed = _mm512_reduce_add_epi32(a[k]);
    return 12.0 * 128 * (1 << 20);
}

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .width = 16,
    .tile = 24,
    .quantise = quantise,
    .dot =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = dot_##name##_avx512,
#include "engine/file/formats.def"
        },
    .gemv =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = gemv_##name##_avx512,
#include "engine/file/formats.def"
        },
    .dot_raw = {[DTYPE_Q8_0] = raw_dot_q8_0_avx512, [DTYPE_Q4_0] = raw_dot_q4_0_avx512},
    .peak_int8 = peak_int8,
    VECTOR_KERNELS,
};
#endif
