/* AVX2 kernels (with FMA and F16C): 8 rows, one per lane; groups of 16 rows are done as two halves.
 * Compiled with its own flags; called only if select.c found the instructions. The set for AVX-VNNI
 * (client processors since 2021: four products of bytes and their sum are one instruction) differs
 * in products of rounded weights alone. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"

#if defined(__AVX2__)
#include "engine/device/cpu/kernels/vector_avx2.h"

#define QUERY_TILE_SMALL 4
#define QUERY_TILE_SMALL_QUARTERS 1
#define QUERY_TILE_SMALL_VECTORS 2
#define QUERY_TILE_LARGE 6
#define QUERY_TILE_LARGE_QUARTERS 1
#define QUERY_TILE_LARGE_VECTORS 2
#define LATENT_QUERIES 4
#define LATENT_TOKENS 1
#define LATENT_VECTORS 2
#define FLOAT_TOKENS 3
#define FLOAT_NATIVE false

static void to_f16(const float *x, int n, uint16_t *out)
{
    int i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    kernels_scalar.to_f16(x + i, n - i, out + i);
}

/* 64 codes of F8, transposed (engine/file/f8.h): out[2k], out[2k + 1] have columns 16k .. 16k+15,
 * each 2^-120 times its code's value, because the code's bits are those of such an F32 number. */
INLINE void vf_from_turned_e4m3(const void *p, vf out[8])
{
    const __m256i bits = _mm256_set1_epi32((int)0x87f00000u);

    for (int v = 0; v < 2; v++) {
        __m256i x = _mm256_loadu_si256((const __m256i *)p + v), odd = _mm256_srai_epi16(x, 4),
                even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 4);

        out[v] = _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(even, 16), bits));
        out[2 + v] = _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(odd, 16), bits));
        out[4 + v] = _mm256_castsi256_ps(_mm256_and_si256(even, bits));
        out[6 + v] = _mm256_castsi256_ps(_mm256_and_si256(odd, bits));
    }
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
            *out = (struct act_block){.from = {SUM_BITS}};
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
        out->from[0] = SUM_BITS - 32 * out->low;
        out->from[1] = -32 * (out->sum - out->low);
        q[0] = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256((void *)out->q, _mm256_permutevar8x32_epi32(q[0], order));
    }
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
            /* hides the value from the compiler, so that it does not hoist the multiplication */
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
    .dot =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = dot_##name##_avx2,
#include "engine/file/formats.def"
        },
    .gemv =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = gemv_##name##_avx2,
#include "engine/file/formats.def"
        },
    .peak_int8 = peak_int8,
    VECTOR_KERNELS,
};

const struct kernels kernels_avxvnni = {
    .name = "avxvnni",
    .width = 8,
    .tile = 24,
    .quantise = quantise,
    .dot =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = dot_##name##_avxvnni,
#include "engine/file/formats.def"
        },
    .gemv =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = gemv_##name##_avxvnni,
#include "engine/file/formats.def"
        },
    .peak_int8 = peak_int8_avxvnni,
    VECTOR_KERNELS,
};
#endif
