/* Quantisation to the types of two to four bits without linear codes, or with scales of few bits
 * (quantize.h): Q2_K, Q3_K, IQ4_NL, IQ4_XS, MXFP4. Any thread. As in quantize.c the scales of the
 * parts are found first; then they are rounded themselves, and the codes recomputed for the rounded
 * scales. */
#include "engine/layout/quantize_low.h"

#include "engine/file/blocks.h"
#include "engine/layout/quantize_search.h"

/* Code c of element i (0 .. 255) among the two-bit codes of Q2_K and Q3_K. */
static void put_two_bits(uint8_t *q, int i, int c)
{
    q[i / 128 * 32 + i % 32] |= (uint8_t)(c << 2 * (i / 32 % 4));
}

void quantise_q2_k(const float *x, const float *importance, uint8_t *out)
{
    float scale[16], min[16], weight[16], most_scale = 0.0f, most_min = 0.0f, d, m;
    uint8_t *scales = out, *q = out + 16, *halves = out + 80;

    for (int j = 0; j < 16; j++) {
        quantise_weights_affine(x + 16 * j, importance ? importance + 16 * j : NULL, 16, weight);
        scale[j] = quantise_search_here()->affine(x + 16 * j, weight, 16, 3, true, &min[j]);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_min = min[j] > most_min ? min[j] : most_min;
    }
    memset(out, 0, 84);
    quantise_put_half(halves, most_scale / 15.0f);
    quantise_put_half(halves + 2, most_min / 15.0f);
    d = quantise_half_at(halves);
    m = quantise_half_at(halves + 2);
    for (int j = 0; j < 16; j++) {
        int s = d > 0.0f ? quantise_nearest(scale[j] / d, 0, 15) : 0,
            o = m > 0.0f ? quantise_nearest(min[j] / m, 0, 15) : 0;
        float unit = d * (float)s, offset = m * (float)o;

        scales[j] = (uint8_t)(s | o << 4);
        for (int i = 16 * j; i < 16 * j + 16; i++)
            put_two_bits(q, i, unit > 0.0f ? quantise_nearest((x[i] + offset) / unit, 0, 3) : 0);
    }
}

void quantise_q3_k(const float *x, const float *importance, uint8_t *out)
{
    float scale[16], weight[16], most = 0.0f, d;
    uint8_t *high = out, *q = out + 32, *scales = out + 96;

    for (int j = 0; j < 16; j++) {
        quantise_weights_symmetric(x + 16 * j, importance ? importance + 16 * j : NULL, 16, weight);
        scale[j] = quantise_search_here()->symmetric(x + 16 * j, weight, 16, 4);
        most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
    }
    memset(out, 0, 110);
    quantise_put_half(out + 108, most / -32.0f);
    d = quantise_half_at(out + 108);
    for (int j = 0; j < 16; j++) {
        int s = d != 0.0f ? quantise_nearest(scale[j] / d, -32, 31) : 0;
        float unit = d * (float)s;

        scales[j % 8] |= (uint8_t)(((s + 32) & 15) << j / 8 * 4);
        scales[8 + j % 4] |= (uint8_t)((s + 32) >> 4 << j / 4 * 2);
        for (int i = 16 * j; i < 16 * j + 16; i++) {
            int c = (unit != 0.0f ? quantise_nearest(x[i] / unit, -4, 3) : 0) + 4;

            put_two_bits(q, i, c & 3);
            high[i % 32] |= (uint8_t)(c >> 2 << i / 32);
        }
    }
}

/* The index of the nearest of the sixteen values (ascending) to v. */
static int nearest_entry(const int8_t *table, float v)
{
    int c = 0;

    while (c < 15 && 2.0f * v > (float)(table[c] + table[c + 1]))
        c++;
    return c;
}

/* 32 elements in units of `unit` as nibbles: elements i and i + 16 share a byte. */
static void put_entries(const int8_t *table, const float *x, float unit, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        int low = nearest_entry(table, unit != 0.0f ? x[i] / unit : 0.0f),
            high = nearest_entry(table, unit != 0.0f ? x[16 + i] / unit : 0.0f);

        q[i] = (uint8_t)(low | high << 4);
    }
}

/* The values of IQ4_NL, row 1 of blocks_values. */
static float fit_values(const float *x, const float *importance)
{
    float weight[32];

    quantise_weights_symmetric(x, importance, 32, weight);
    return quantise_search_here()->codebook(x, weight, 32, blocks_values[1]);
}

void quantise_iq4_nl(const float *x, const float *importance, uint8_t *out)
{
    quantise_put_half(out, fit_values(x, importance));
    put_entries(blocks_values[1], x, quantise_half_at(out), out + 2);
}

void quantise_iq4_xs(const float *x, const float *importance, uint8_t *out)
{
    float scale[8], most = 0.0f, d;
    unsigned high = 0;

    for (int j = 0; j < 8; j++) {
        scale[j] = fit_values(x + 32 * j, importance ? importance + 32 * j : NULL);
        most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
    }
    memset(out, 0, 8);
    quantise_put_half(out, most / -32.0f);
    d = quantise_half_at(out);
    for (int j = 0; j < 8; j++) {
        int s = d != 0.0f ? quantise_nearest(scale[j] / d, -32, 31) : 0;

        out[4 + j / 2] |= (uint8_t)(((s + 32) & 15) << (j & 1) * 4);
        high |= (unsigned)(s + 32) >> 4 << 2 * j;
        put_entries(blocks_values[1], x + 32 * j, d * (float)s, out + 8 + 16 * j);
    }
    out[2] = (uint8_t)high;
    out[3] = (uint8_t)(high >> 8);
}

/* The values of MXFP4 doubled, code by code (row 2 of blocks_values), upwards. */
static const int8_t fp4[16] = {-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12};

/* fp4's entry -> code: the sign is the highest bit, and zero has none. */
static int fp4_code(int entry)
{
    return entry < 7 ? 15 - entry : entry > 7 ? entry - 8 : 0;
}

static double fp4_error(const float *x, const float *weight, float unit)
{
    double error = 0.0;

    for (int i = 0; i < 32; i++) {
        double e = (double)x[i] - (double)unit * (double)fp4[nearest_entry(fp4, x[i] / unit)];

        error += (double)weight[i] * e * e;
    }
    return error;
}

/* The scale is a power of two: the largest element is 4 to 8 of its units of a half, or 2 to 4,
 * which ever loses less. */
void quantise_mxfp4(const float *x, const float *importance, uint8_t *out)
{
    float weight[32], amax = 0.0f, unit;
    int exponent, e = 0;
    double least = INFINITY;

    for (int i = 0; i < 32; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    memset(out, 0, 17);
    if (amax < 1e-30f)
        return;
    quantise_weights_symmetric(x, importance, 32, weight);
    frexpf(amax, &exponent); /* amax is in 2^(exponent-1) .. 2^exponent */
    for (int i = exponent - 3; i <= exponent - 2; i++) {
        int biased = i + 127 < 1 ? 1 : i + 127 > 254 ? 254 : i + 127;
        double error = fp4_error(x, weight, num_from_e8m0_half((uint8_t)biased));

        if (error < least) {
            least = error;
            e = biased;
        }
    }
    out[0] = (uint8_t)e;
    unit = num_from_e8m0_half(out[0]);
    for (int i = 0; i < 16; i++)
        out[1 + i] = (uint8_t)(fp4_code(nearest_entry(fp4, x[i] / unit)) |
                               fp4_code(nearest_entry(fp4, x[16 + i] / unit)) << 4);
}
