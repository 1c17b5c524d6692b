/* The 16-bit floating-point formats of weights and caches: IEEE-754 binary16 (F16) and bfloat16
 * (BF16), to and from F32. Plain integer code, the same bits everywhere; engine/device/numerics.h
 * relies on that. Pure functions: any thread. */
#ifndef ENGINE_BASE_HALF_H
#define ENGINE_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t num_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float num_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline float num_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;

    if (e == 0)
        /* exact: m * 2^-24 */
        return num_float(sign) + (sign ? -1.0f : 1.0f) * (float)m * 5.9604644775390625e-8f;
    if (e == 31)
        /* NaN becomes quiet, as from vcvtph2ps */
        return num_float(sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0u));
    return num_float(sign | (e + 112u) << 23 | m << 13);
}

/* Nearest even; overflow to infinity, NaN stays NaN. */
static inline uint16_t num_to_f16(float x)
{
    uint32_t u = num_bits(x), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u, r;

    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    /* subnormal half: adding 0.5 aligns the last bit with 2^-24 */
    if (a < 0x38800000u) {
        r = num_bits(num_float(a) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | r);
    }
    r = a - 0x38000000u;
    r += 0xfffu + ((r >> 13) & 1u);
    return (uint16_t)(sign | r >> 13);
}

/* A scale of MXFP4 blocks: 2^(e-128), subnormal below 2. */
static inline float num_from_e8m0_half(uint8_t e)
{
    return num_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* A scale of NVFP4 blocks: E4M3 without a sign, halved; what would be NaN is 0 (ggml). */
static inline float num_from_ue4m3_half(uint8_t x)
{
    return x == 0x7f ? 0.0f : num_from_f16((uint16_t)((x & 0x7f) << 7)) * 128.0f;
}

/* An E4M3 number / 256, exactly: its bits are those of that F16. What would be NaN is 480 / 256. */
static inline float num_from_e4m3_half(uint8_t x)
{
    return num_from_f16((uint16_t)((x & 0x80) << 8 | (x & 0x7f) << 7));
}

static inline float num_from_bf16(uint16_t h)
{
    return num_float((uint32_t)h << 16);
}

static inline uint16_t num_to_bf16(float x)
{
    uint32_t u = num_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

#endif
