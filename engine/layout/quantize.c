/* Quantisation by search (quantize.h). Any thread. Two problems are solved here. Symmetric: x ~ s *
 * q with q in -h .. h-1. Affine: x ~ s * q - m with q in 0 .. top and m >= 0. Both try some
 * starting scales around the one that just covers the range, round, and solve for the best s (and
 * m) under those codes in closed form; the best of all tries is taken. The two-level types then
 * round the scales themselves and recompute the codes for the rounded scales. */
#include "engine/layout/quantize.h"

#include "engine/layout/pack.h"
#include "engine/layout/quantize_low.h"
#include "engine/layout/quantize_search.h"

#include <assert.h>

bool quantise_known(enum dtype type)
{
    switch (type) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
    case DTYPE_Q6_K:
    case DTYPE_Q2_K:
    case DTYPE_Q3_K:
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS:
    case DTYPE_MXFP4: return true;
    default: return row_writable(type);
    }
}

static float fit_signed(const float *x, const float *importance, int n, int half)
{
    float weight[32];

    quantise_weights_symmetric(x, importance, n, weight);
    return quantise_search_here()->symmetric(x, weight, n, half);
}

static float fit_offset(const float *x, const float *importance, int top, bool subtract, float *min)
{
    float weight[32];

    quantise_weights_affine(x, importance, 32, weight);
    return quantise_search_here()->affine(x, weight, 32, top, subtract, min);
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

/* Q4_0 and Q5_0: codes half above their values. */
static void signed_block(const float *x, const float *importance, int half, uint8_t *out)
{
    bool fifth = half > 8;
    uint8_t code[32];
    float d;

    quantise_put_half(out, fit_signed(x, importance, 32, half));
    d = quantise_half_at(out);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((d != 0.0f ? quantise_nearest(x[i] / d, -half, half - 1) : 0) + half);
    put_codes(code, fifth ? out + 6 : out + 2, fifth ? out + 2 : NULL);
}

static void affine_block(const float *x, const float *importance, int top, uint8_t *out)
{
    uint8_t code[32];
    float min, d, m;

    quantise_put_half(out, fit_offset(x, importance, top, false, &min));
    quantise_put_half(out + 2, -min);
    d = quantise_half_at(out);
    m = quantise_half_at(out + 2);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(d != 0.0f ? quantise_nearest((x[i] - m) / d, 0, top) : 0);
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

static void q45_k(const float *x, const float *importance, int top, uint8_t *out)
{
    float scale[8], min[8], most_scale = 0.0f, most_min = 0.0f, d, m;
    int scales[8], mins[8];
    uint8_t code[256], *q = out + (top > 15 ? 48 : 16);

    for (int j = 0; j < 8; j++) {
        scale[j] = fit_offset(x + 32 * j, importance ? importance + 32 * j : NULL, top, true,
                              &min[j]);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_min = min[j] > most_min ? min[j] : most_min;
    }
    quantise_put_half(out, most_scale / 63.0f);
    quantise_put_half(out + 2, most_min / 63.0f);
    d = quantise_half_at(out);
    m = quantise_half_at(out + 2);
    for (int j = 0; j < 8; j++) {
        float s, o;

        scales[j] = d > 0.0f ? quantise_nearest(scale[j] / d, 0, 63) : 0;
        mins[j] = m > 0.0f ? quantise_nearest(min[j] / m, 0, 63) : 0;
        s = d * (float)scales[j];
        o = m * (float)mins[j];
        for (int i = 0; i < 32; i++)
            code[32 * j + i] =
                (uint8_t)(s > 0.0f ? quantise_nearest((x[32 * j + i] + o) / s, 0, top) : 0);
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

static void q6_k(const float *x, const float *importance, uint8_t *out)
{
    float scale[16], most = 0.0f, d;

    for (int j = 0; j < 16; j++) {
        scale[j] = fit_signed(x + 16 * j, importance ? importance + 16 * j : NULL, 16, 32);
        most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
    }
    memset(out, 0, 210);
    quantise_put_half(out + 208, most / -128.0f);
    d = quantise_half_at(out + 208);
    if (d == 0.0f) { /* code 32 means zero */
        memset(out + 128, 0xaa, 64);
        return;
    }
    for (int j = 0; j < 16; j++) {
        int8_t s = (int8_t)quantise_nearest(scale[j] / d, -128, 127);
        float unit = d * (float)s;

        out[192 + j] = (uint8_t)s;
        for (int i = 0; i < 16; i++) {
            int at = j / 2,
                c = (unit != 0.0f ? quantise_nearest(x[16 * j + i] / unit, -32, 31) : 0) + 32,
                byte = j % 2 * 16 + i;

            out[at / 4 * 64 + (at & 1) * 32 + byte] |= (uint8_t)((c & 15) << (at & 2 ? 4 : 0));
            out[128 + at / 4 * 32 + byte] |= (uint8_t)((c >> 4) << (2 * (at & 3)));
        }
    }
}

static void quantise_block(enum dtype type, const float *x, const float *importance, uint8_t *out)
{
    switch (type) {
    case DTYPE_Q4_0: signed_block(x, importance, 8, out); break;
    case DTYPE_Q5_0: signed_block(x, importance, 16, out); break;
    case DTYPE_Q4_1: affine_block(x, importance, 15, out); break;
    case DTYPE_Q5_1: affine_block(x, importance, 31, out); break;
    case DTYPE_Q2_K: quantise_q2_k(x, importance, out); break;
    case DTYPE_Q3_K: quantise_q3_k(x, importance, out); break;
    case DTYPE_Q4_K: q45_k(x, importance, 15, out); break;
    case DTYPE_Q5_K: q45_k(x, importance, 31, out); break;
    case DTYPE_Q6_K: q6_k(x, importance, out); break;
    case DTYPE_IQ4_NL: quantise_iq4_nl(x, importance, out); break;
    case DTYPE_IQ4_XS: quantise_iq4_xs(x, importance, out); break;
    case DTYPE_MXFP4: quantise_mxfp4(x, importance, out); break;
    default: assert(false);
    }
}

void quantise_row(enum dtype type, const float *x, const float *importance, int64_t n, void *out)
{
    const struct dtype_info *d = dtype_info(type);
    uint8_t *to = out;
    float clean[256];

    assert(quantise_known(type));
    assert(n >= 0 && n % dtype_info(type)->block == 0);
    if (row_writable(type) && !(importance && type == DTYPE_Q4_0)) {
        row_from_f32(type, x, n, out);
        return;
    }
    for (int64_t at = 0; at < n; at += d->block, to += d->bytes) {
        for (int i = 0; i < d->block; i++)
            clean[i] = isfinite(x[at + i]) ? x[at + i] : 0.0f;
        quantise_block(type, clean, importance ? importance + at : NULL, to);
    }
}
