/* NEON kernels of 64-bit Arm: 8 rows, one per lane, two registers; groups of 16 rows are done as
 * two halves. kernels_dotprod.c and kernels_i8mm.c compile this text again; called only if select.c
 * found the instructions. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/device/cpu/kernels/kernels.h"

#if defined(__aarch64__)
#include "engine/device/cpu/kernels/vector_neon.h"

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
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define FLOAT_NATIVE true
#else
#define FLOAT_NATIVE false
#endif

static void to_f16(const float *x, int n, uint16_t *out)
{
    int i = 0;

    for (; i + 4 <= n; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    kernels_scalar.to_f16(x + i, n - i, out + i);
}

/* 64 codes of F8, transposed (engine/file/f8.h): out[2k], out[2k + 1] have columns 16k .. 16k+15,
 * each 2^-120 times its code's value, because the code's bits are those of such an F32 number. */
INLINE void vf_from_turned_e4m3(const void *p, vf out[8])
{
    const vi bits = vi_set1((int)0x87f00000u);

    for (int v = 0; v < 2; v++) {
        vi x = vi_load((const uint8_t *)p + 32 * v),
           odd = {(int32x4_t)((int16x8_t)x.a >> 4), (int32x4_t)((int16x8_t)x.b >> 4)},
           even = {(int32x4_t)((int16x8_t)vi_up(x, 8).a >> 4),
                   (int32x4_t)((int16x8_t)vi_up(x, 8).b >> 4)};

        out[v] = vi_as_vf(vi_and(vi_word_up(even, 16), bits));
        out[2 + v] = vi_as_vf(vi_and(vi_word_up(odd, 16), bits));
        out[4 + v] = vi_as_vf(vi_and(even, bits));
        out[6 + v] = vi_as_vf(vi_and(odd, bits));
    }
}

#include "engine/device/cpu/kernels/vector.inc"

static void quantise(const float *x, int cols, struct act_block *out, int stride)
{
    for (int b = 0; b < cols / NUM_BLOCK; b++, x += NUM_BLOCK, out += stride) {
        float32x4_t m = vdupq_n_f32(0.0f);
        int8x16_t q[2];
        float amax, d, id;

        /* a NaN never wins */
        for (int i = 0; i < 8; i++) {
            float32x4_t v = vabsq_f32(vld1q_f32(x + 4 * i));

            m = vbslq_f32(vcgtq_f32(v, m), v, m);
        }
        amax = vmaxvq_f32(m);
        if (!(amax >= 5.42101086e-20f) || amax > 1e30f) {
            *out = (struct act_block){.from = {SUM_BITS}};
            continue;
        }
        d = amax * (1.0f / 127.0f);
        id = num_recip(d);
        /* to the nearest, even; NaN becomes 0, what is too large the largest */
        for (int h = 0; h < 2; h++) {
            int16x8_t s[2];

            for (int i = 0; i < 2; i++) {
                const float *at = x + 16 * h + 8 * i;
                int32x4_t lo = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(at), id)),
                          hi = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(at + 4), id));

                s[i] = vqmovn_high_s32(vqmovn_s32(lo), hi);
            }
            q[h] = vmaxq_s8(vqmovn_high_s16(vqmovn_s16(s[0]), s[1]), vdupq_n_s8(-127));
            vst1q_s8(out->q + 16 * h, q[h]);
        }
        out->d = d;
        out->low = vaddlvq_s8(q[0]);
        out->sum = out->low + vaddlvq_s8(q[1]);
        out->m8 = out->sum * -8;
        out->m128 = out->sum * -128;
        out->fsum = (float)out->sum;
        out->from[0] = SUM_BITS - 32 * out->low;
        out->from[1] = -32 * (out->sum - out->low);
    }
}

static uint64_t read_all(const void *p, size_t n)
{
    const uint8_t *at = p;
    uint64x2_t s[4];

    for (int k = 0; k < 4; k++)
        s[k] = vdupq_n_u64(0);
    for (size_t i = 0; i < n; i += 64) {
        __builtin_prefetch(at + i + PREFETCH_READ, 0, 3);
        for (int k = 0; k < 4; k++)
            s[k] = vaddq_u64(s[k], vreinterpretq_u64_u8(vld1q_u8(at + i + 16 * (size_t)k)));
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(s[0], s[1]), vaddq_u64(s[2], s[3])));
}

static double peak_int8(void)
{
    volatile int seed = 3;
    int8x16_t b = vdupq_n_s8((int8_t)seed), c = vdupq_n_s8((int8_t)(seed + 1));
    int32x4_t a[12];
#if defined(__ARM_FEATURE_MATMUL_INT8)
    const double operations = 64;
#elif defined(__ARM_FEATURE_DOTPROD)
    const double operations = 32;
#else
    const double operations = 16;
#endif

    for (int k = 0; k < 12; k++)
        a[k] = vdupq_n_s32(seed + k);
    for (int i = 0; i < 1 << 20; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            /* hides the value from the compiler, so that it does not hoist the multiplication */
            __asm__("" : "+w"(b));
#if defined(__ARM_FEATURE_MATMUL_INT8)
            a[k] = vmmlaq_s32(a[k], b, c);
#elif defined(__ARM_FEATURE_DOTPROD)
            a[k] = vdotq_s32(a[k], b, c);
#else
            a[k] = vpadalq_s16(a[k], vmull_s8(vget_low_s8(b), vget_low_s8(c)));
#endif
        }
    }
    for (int k = 0; k < 12; k++)
        seed = vaddvq_s32(a[k]);
    return 12.0 * operations * (1 << 20);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define SET(name) name##_i8mm
#define SET_NAME "i8mm"
#elif defined(__ARM_FEATURE_DOTPROD)
#define SET(name) name##_dotprod
#define SET_NAME "dotprod"
#else
#define SET(name) name##_neon
#define SET_NAME "neon"
#endif

const struct kernels SET(kernels) = {
    .name = SET_NAME,
    .width = 8,
    .tile = 24,
    .quantise = quantise,
    .dot =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = SET(dot_##name),
#include "engine/file/formats.def"
        },
    .gemv =
        {
#define FORMAT(id, name, ...) [DTYPE_##id] = SET(gemv_##name),
#include "engine/file/formats.def"
        },
    .peak_int8 = peak_int8,
    VECTOR_KERNELS,
};
#endif
