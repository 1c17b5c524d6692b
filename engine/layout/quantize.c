/* Quantisation by search (quantize.h). Any thread.
 * Two problems are solved here. Symmetric: x ~ s * q with q in -h .. h-1. Affine: x ~ s * q - m
 * with q in 0 .. top and m >= 0. Both try some starting scales around the one that just covers the
 * range, round, and solve for the best s (and m) under those codes in closed form; the best of all
 * tries wins. The two-level types then round the scales themselves and take the codes again under
 * what is left. */
#include "engine/layout/quantize.h"

#include "engine/layout/pack.h"
#include "engine/base/half.h"

#include <assert.h>
#include <math.h>
#include <string.h>

bool quantise_known(enum dtype type)
{
    switch (type) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
    case DTYPE_Q6_K: return true;
    default: return row_writable(type);
    }
}

static int nearest(float x, int low, int high)
{
    float r = rintf(x);

    return r <= (float)low ? low : r >= (float)high ? high : (int)r;
}

#include "engine/layout/quantize_search.inc"

const struct quantise_search quantise_search_plain = {fit_symmetric, fit_affine};

static const struct quantise_search *search(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") ? &quantise_search_avx2 : &quantise_search_plain;
#else
    return &quantise_search_plain;
#endif
}

static void put_half(uint8_t *p, float x)
{
    uint16_t h = num_to_f16(x);

    memcpy(p, &h, 2);
}

static float half_at(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, 2);
    return num_from_f16(h);
}

/* 32 codes of 4 bits, and the fifth bits. */
static void put_codes(const uint8_t *code, uint8_t *payload, uint8_t *high)
{
    uint32_t bits = 0;

    for (int i = 0; i < 32; i++)
        bits |= (uint32_t)(code[i] >> 4 & 1) << i;
    for (int i = 0; i < 16; i++)
        payload[i] = (uint8_t)((code[i] & 15) | (code[16 + i] & 15) << 4);
    if (high)
        memcpy(high, &bits, 4);
}

static void q5_0(const float *x, uint8_t *out)
{
    uint8_t code[32];
    float d;

    put_half(out, search()->symmetric(x, 32, 16));
    d = half_at(out);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((d != 0.0f ? nearest(x[i] / d, -16, 15) : 0) + 16);
    put_codes(code, out + 6, out + 2);
}

static void affine_block(const float *x, int top, uint8_t *out)
{
    uint8_t code[32];
    float min, d, m;

    put_half(out, search()->affine(x, 32, top, false, &min));
    put_half(out + 2, -min);
    d = half_at(out);
    m = half_at(out + 2);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(d != 0.0f ? nearest((x[i] - m) / d, 0, top) : 0);
    put_codes(code, top > 15 ? out + 8 : out + 4, top > 15 ? out + 4 : NULL);
}

/* 6-bit factors into the 12 bytes of Q4_K and Q5_K. */
static void put_factors(uint8_t *s, const int *scale, const int *min)
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(scale[j] | (scale[4 + j] >> 4) << 6);
        s[4 + j] = (uint8_t)(min[j] | (min[4 + j] >> 4) << 6);
        s[8 + j] = (uint8_t)((scale[4 + j] & 15) | (min[4 + j] & 15) << 4);
    }
}

static void q45_k(const float *x, int top, uint8_t *out)
{
    float scale[8], min[8], most_scale = 0.0f, most_min = 0.0f, d, m;
    int scales[8], mins[8];
    uint8_t code[256], *q = out + (top > 15 ? 48 : 16);

    for (int j = 0; j < 8; j++) {
        scale[j] = search()->affine(x + 32 * j, 32, top, true, &min[j]);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_min = min[j] > most_min ? min[j] : most_min;
    }
    put_half(out, most_scale / 63.0f);
    put_half(out + 2, most_min / 63.0f);
    d = half_at(out);
    m = half_at(out + 2);
    for (int j = 0; j < 8; j++) {
        float s, o;

        scales[j] = d > 0.0f ? nearest(scale[j] / d, 0, 63) : 0;
        mins[j] = m > 0.0f ? nearest(min[j] / m, 0, 63) : 0;
        s = d * (float)scales[j];
        o = m * (float)mins[j];
        for (int i = 0; i < 32; i++)
            code[32 * j + i] = (uint8_t)(s > 0.0f ? nearest((x[32 * j + i] + o) / s, 0, top) : 0);
    }
    put_factors(out + 4, scales, mins);
    if (top > 15)
        memset(out + 16, 0, 32);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) {
            uint8_t c = code[32 * j + i];

            q[j / 2 * 32 + i] = (uint8_t)(j & 1 ? q[j / 2 * 32 + i] | (c & 15) << 4 : c & 15);
            if (top > 15)
                out[16 + i] |= (uint8_t)((c >> 4) << j);
        }
}

static void q6_k(const float *x, uint8_t *out)
{
    float scale[16], most = 0.0f, d;

    for (int j = 0; j < 16; j++) {
        scale[j] = search()->symmetric(x + 16 * j, 16, 32);
        most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
    }
    memset(out, 0, 210);
    put_half(out + 208, most / -128.0f);
    d = half_at(out + 208);
    if (d == 0.0f) { /* code 32 stands for zero */
        memset(out + 128, 0xaa, 64);
        return;
    }
    for (int j = 0; j < 16; j++) {
        int8_t s = (int8_t)nearest(scale[j] / d, -128, 127);
        float unit = d * (float)s;

        out[192 + j] = (uint8_t)s;
        for (int i = 0; i < 16; i++) {
            int at = j / 2, c = (unit != 0.0f ? nearest(x[16 * j + i] / unit, -32, 31) : 0) + 32,
                byte = j % 2 * 16 + i;

            out[at / 4 * 64 + (at & 1) * 32 + byte] |= (uint8_t)((c & 15) << (at & 2 ? 4 : 0));
            out[128 + at / 4 * 32 + byte] |= (uint8_t)((c >> 4) << (2 * (at & 3)));
        }
    }
}

void quantise_row(enum dtype type, const float *x, int64_t n, void *out)
{
    const struct dtype_info *d = dtype_info(type);
    uint8_t *to = out;
    float clean[256];

    assert(quantise_known(type));
    assert(n >= 0 && n % dtype_info(type)->block == 0);
    if (row_writable(type)) {
        row_from_f32(type, x, n, out);
        return;
    }
    for (int64_t at = 0; at < n; at += d->block, to += d->bytes) {
        for (int i = 0; i < d->block; i++)
            clean[i] = isfinite(x[at + i]) ? x[at + i] : 0.0f;
        switch (type) {
        case DTYPE_Q4_1: affine_block(clean, 15, to); break;
        case DTYPE_Q5_1: affine_block(clean, 31, to); break;
        case DTYPE_Q5_0: q5_0(clean, to); break;
        case DTYPE_Q4_K: q45_k(clean, 15, to); break;
        case DTYPE_Q5_K: q45_k(clean, 31, to); break;
        case DTYPE_Q6_K: q6_k(clean, to); break;
        default: memset(to, 0, (size_t)d->bytes); break;
        }
    }
}
