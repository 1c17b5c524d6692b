/* Dequantisation (blocks.h). Formats after ggml-common.h and gguf-py/gguf/quants.py. Any thread.
 * F32 arithmetic with one rounding per operation in the order of the gguf package: the golden
 * blocks in tests/ compare bits. */
#include "engine/file/blocks.h"
#include "engine/file/f8.h"

#include "engine/base/half.h"
#include "engine/file/blocks_words.h"
#include "engine/file/format_traits.h"

#include <assert.h>
#include <string.h>

/* IQ4_NL; E2M1, doubled; IQ2_K, IQ3_K, IQ5_K, IQ6_K (ik_llama.cpp, ggml-common.h: iq2nl_values,
 * iq3nl_values, iq5nl_values, iq6nl_values). */
const int8_t blocks_values[][16] = {
    {0},
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    {-31, -13, 1, 17},
    {-63, -40, -23, -10, 1, 13, 28, 47},
    {-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6},
    {-1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121},
    {-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54},
    {-51, -47, -44, -40, -37, -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5},
    {-2, 0, 3, 6, 9, 12, 14, 17, 20, 23, 27, 30, 33, 36, 40, 44},
    {47, 51, 55, 59, 63, 68, 72, 77, 82, 87, 92, 98, 103, 109, 115, 121},
    {-63, -63, -40, -40, -40, -40, -23, -23, -23, -23, -23, -10, -10, -10, -10, 1},
    {1, 1, 1, 1, 13, 13, 13, 13, 13, 28, 28, 28, 28, 28, 47, 47},
    {-23, 13, -63, -10, 13, 47, -40, -23, 1, 13, 28, -63, 1, 13, 47, -23},
    {-10, 1, 13, 28, -40, -23, -10, 1, 13, -63, -23, 1, 28, 47, -23, 13},
};

bool blocks_readable(enum dtype type)
{
    return format_of[type].bits != 0;
}

static uint16_t half_at(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, 2);
    return h;
}

static float single_at(const uint8_t *p)
{
    float x;

    memcpy(&x, p, 4);
    return x;
}

/* 16 bytes: elements 0..15 in the low nibbles, 16..31 in the high ones. */
static void nibbles(const uint8_t *q, uint8_t *code)
{
    for (int i = 0; i < 16; i++) {
        code[i] = q[i] & 15;
        code[16 + i] = q[i] >> 4;
    }
}

/* 32 bytes with a sign. */
static void bytes(const uint8_t *q, uint8_t *code)
{
    for (int i = 0; i < 32; i++)
        code[i] = q[i] ^ 0x80;
}

static void fifth_bits(const uint8_t *p, uint8_t *code)
{
    uint32_t bits;

    memcpy(&bits, p, 4);
    for (int i = 0; i < 32; i++)
        code[i] |= (uint8_t)((bits >> i & 1) << 4);
}

static void scale_block(struct block_fields *out, int factor)
{
    out->d[0] = out->d[1] = out->d[0] * (float)factor;
}

/* 6-bit factors of sub-block j out of the 12 bytes of Q4_K and Q5_K. */
static void factors(const uint8_t *s, int j, struct block_fields *out)
{
    scale_block(out, j < 4 ? s[j] & 63 : (s[4 + j] & 15) | (s[j - 4] >> 6) << 4);
    out->m *= (float)(j < 4 ? s[4 + j] & 63 : s[4 + j] >> 4 | (s[j] >> 6) << 4);
}

/* Sub-block j of 256 elements: a pair of sub-blocks shares 32 bytes, one in each nibble. */
static void k_codes(const uint8_t *q, int j, uint8_t *code)
{
    for (int i = 0; i < 32; i++)
        code[i] = j & 1 ? q[j / 2 * 32 + i] >> 4 : q[j / 2 * 32 + i] & 15;
}

static void q6_codes(const uint8_t *block, int j, uint8_t *code, struct block_fields *out)
{
    const uint8_t *low = block + j / 4 * 64 + (j & 1) * 32, *high = block + 128 + j / 4 * 32;

    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(((j & 2) ? low[i] >> 4 : low[i] & 15) | (high[i] >> (2 * (j & 3)) & 3)
                                                                        << 4);
    out->factor[0] = (int8_t)block[192 + 2 * j];
    out->factor[1] = (int8_t)block[192 + 2 * j + 1];
}

/* IQ4_XS: d, two bits of each factor, four bits of each, the nibbles. */
static void iq4_xs_codes(const uint8_t *block, int j, uint8_t *code, struct block_fields *out)
{
    int low = block[4 + j / 2] >> 4 * (j & 1) & 15, high = half_at(block + 2) >> 2 * j & 3;

    scale_block(out, (low | high << 4) - 32);
    nibbles(block + 8 + 16 * j, code);
}

/* Formats whose superblock is one block. */
static void simple_codes(enum dtype type, const uint8_t *block, uint8_t *code)
{
    const uint8_t *high = block + format_head(type), *payload = high + format_payload(type);

    if (format_of[type].bits == 8)
        bytes(payload, code);
    else
        nibbles(payload, code);
    if (format_of[type].high)
        fifth_bits(high, code);
}

/* Formats packed block by block. */
static void block_codes(enum dtype type, const uint8_t *p, int j, struct block_fields *out)
{
    const struct format_traits *f = &format_of[type];
    uint8_t code[32];

    if (f->halves) {
        q6_codes(p, j, code, out);
    } else if (f->factors == 2) {
        iq4_xs_codes(p, j, code, out);
    } else if (f->factors) {
        factors(p + 4, j, out);
        k_codes(p + (f->high ? 48 : 16), j, code);
        for (int i = 0; i < 32 && f->high; i++)
            code[i] |= (uint8_t)((p[16 + i] >> j & 1) << 4);
    } else {
        simple_codes(type, p, code);
    }
    for (int i = 0; i < 32; i++)
        out->value[i] = (int8_t)blocks_value(type, code[i]);
}

static float scale_at(enum dtype type, const uint8_t *p)
{
    switch (format_of[type].scale) {
    case SCALE_F16:
    case SCALE_F16_1:
    case SCALE_F16_2: return num_from_f16(half_at(p + format_of[type].at));
    case SCALE_E8M0: return num_from_e8m0_half(p[format_of[type].at]);
    case SCALE_F32: return single_at(p + format_of[type].at);
    default: return 0.0f;
    }
}

void blocks_fields(enum dtype type, const void *row, int64_t index, struct block_fields *out)
{
    const struct format_traits *f = &format_of[type];
    const uint8_t *p = (const uint8_t *)row +
                       (size_t)(index / f->blocks) * (size_t)format_superblock(type);
    int j = (int)(index % f->blocks);

    assert(blocks_readable(type) && index >= 0);
    out->factor[0] = out->factor[1] = out->least[0] = out->least[1] = 1;
    out->d[0] = out->d[1] = scale_at(type, p);
    out->m = f->minimum ? num_from_f16(half_at(p + f->at + 2)) * (float)f->minimum : 0.0f;
    if (f->words)
        blocks_words(type, p + format_words_at(type), j, out);
    else
        block_codes(type, p, j, out);
}

int blocks_value(enum dtype type, uint8_t code)
{
    return format_of[type].lookup ? blocks_values[format_of[type].lookup][code]
                                  : code - format_of[type].zero;
}

void blocks_to_f32(enum dtype type, const void *row, int64_t n, float *out)
{
    struct block_fields b;

    assert(blocks_readable(type));
    assert(n % dtype_info(type)->block == 0);
    for (int64_t k = 0; k < n / 32; k++, out += 32) {
        blocks_fields(type, row, k, &b);
        for (int i = 0; i < 32; i++)
            out[i] = b.d[i / 16] * (float)b.factor[i / 16] * (float)b.value[i];
        if (format_of[type].minimum)
            for (int i = 0; i < 32; i++)
                out[i] += b.m * (float)b.least[i / 16];
    }
}

void f8_to_f32(const void *row, int64_t n, float *out)
{
    const uint8_t *p = row;

    for (int64_t i = 0; i < n; i++) {
        float d;

        memcpy(&d, p + i / F8_BLOCK * F8_BLOCK_BYTES, sizeof d);
        out[i] = num_from_e4m3_half(p[f8_place(i, n)]) * d;
    }
}

/* A number is not finite when all bits of its exponent are set. */
static bool halves_finite(const uint8_t *p, size_t n, uint16_t exponent)
{
    uint16_t bad = 0;

#pragma omp simd reduction(| : bad)
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;

        memcpy(&bits, p + 2 * i, 2);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

static bool singles_finite(const uint8_t *p, size_t n)
{
    uint32_t bad = 0;

#pragma omp simd reduction(| : bad)
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, p + 4 * i, 4);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

/* The F16 at p and the one `second` bytes on, every `step` bytes. */
static bool scales_finite(const uint8_t *p, size_t n, size_t step, size_t second)
{
    unsigned bad = 0;

    for (; n; n--, p += step)
        bad |= ((half_at(p) & 0x7c00u) + 0x400u) | ((half_at(p + second) & 0x7c00u) + 0x400u);
    return !(bad & 0x8000u);
}

/* The largest values of a block with a larger exponent are beyond F32. */
static bool exponents_finite(const uint8_t *p, size_t n, size_t step)
{
    unsigned bad = 0;

    for (; n; n--, p += step)
        bad |= *p > 252;
    return !bad;
}

/* F32 scales, whose products with factor and value are below 2^15 times them. */
static bool factored_finite(const uint8_t *p, size_t n, size_t step)
{
    bool good = true;

    for (; n; n--, p += step) {
        float x = single_at(p);

        good = good && x - x == 0.0f && x < 0x1p112f && x > -0x1p112f;
    }
    return good;
}

static bool spread_finite(enum dtype type, const uint8_t *p, size_t n, size_t step)
{
    bool good = true;

    for (; n; n--, p += step)
        good = good && (blocks_spread(p + format_of[type].at) & 0x7c00u) != 0x7c00u;
    return good;
}

bool blocks_finite(enum dtype type, const void *blocks, size_t bytes)
{
    size_t step = (size_t)dtype_info(type)->bytes, n = bytes / step;
    const uint8_t *p = blocks;

    assert(bytes % (size_t)dtype_info(type)->bytes == 0);
    switch (type) {
    case DTYPE_F32: return singles_finite(p, n);
    case DTYPE_F16: return halves_finite(p, n, 0x7c00);
    case DTYPE_BF16: return halves_finite(p, n, 0x7f80);
    default:
        switch (format_of[type].scale) {
        case SCALE_E8M0: return exponents_finite(p + format_of[type].at, n, step);
        case SCALE_SPREAD: return spread_finite(type, p, n, step);
        case SCALE_E4M3: return true;
        case SCALE_F32: return factored_finite(p + format_of[type].at, n, step);
        case SCALE_F16:
        case SCALE_F16_1:
        case SCALE_F16_2: break;
        }
        return !format_of[type].bits ||
               scales_finite(p + format_of[type].at, n, step, format_of[type].minimum ? 2 : 0);
    }
}

bool f8_finite(const void *row, int64_t n)
{
    const uint8_t *p = row;
    unsigned bad = 0;

    for (int64_t i = 0; i < n; i += F8_BLOCK, p += F8_BLOCK_BYTES) {
        bad |= !singles_finite(p, 1);
        for (int64_t k = 0; k < F8_BLOCK && i + k < n; k++)
            bad |= (p[4 + k] & 0x7f) == 0x7f;
    }
    return !bad;
}
