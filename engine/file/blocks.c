/* Dequantisation (blocks.h). Formats after ggml-common.h and gguf-py/gguf/quants.py. Any thread.
 * Arithmetic is F32 with one rounding an operation in the order of the gguf package: the golden
 * blocks in tests/ compare bits. */
#include "engine/file/blocks.h"

#include "engine/base/half.h"
#include "engine/file/format_traits.h"

#include <assert.h>
#include <string.h>

/* IQ4_NL; E2M1, doubled. */
const int8_t blocks_values[][16] = {
    {0},
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
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

/* 6-bit factors of sub-block j out of the 12 bytes of Q4_K and Q5_K. */
static void factors(const uint8_t *s, int j, struct block_fields *out)
{
    if (j < 4) {
        out->scale = s[j] & 63;
        out->min = s[4 + j] & 63;
    } else {
        out->scale = (uint8_t)((s[4 + j] & 15) | (s[j - 4] >> 6) << 4);
        out->min = (uint8_t)(s[4 + j] >> 4 | (s[j] >> 6) << 4);
    }
}

/* Sub-block j of 256 elements: a pair of sub-blocks shares 32 bytes, one in each nibble. */
static void k_codes(const uint8_t *q, int j, uint8_t *code)
{
    for (int i = 0; i < 32; i++)
        code[i] = j & 1 ? q[j / 2 * 32 + i] >> 4 : q[j / 2 * 32 + i] & 15;
}

static void q6_codes(const uint8_t *block, int j, struct block_fields *out)
{
    const uint8_t *low = block + j / 4 * 64 + (j & 1) * 32, *high = block + 128 + j / 4 * 32;

    for (int i = 0; i < 32; i++)
        out->code[i] = (uint8_t)(((j & 2) ? low[i] >> 4 : low[i] & 15) |
                                 (high[i] >> (2 * (j & 3)) & 3) << 4);
    out->half[0] = (int8_t)block[192 + 2 * j];
    out->half[1] = (int8_t)block[192 + 2 * j + 1];
}

/* Formats whose superblock is one block. */
static void simple_codes(enum dtype type, const uint8_t *block, struct block_fields *out)
{
    const uint8_t *high = block + format_head(type), *payload = high + format_payload(type);

    if (format_of[type].bits == 8)
        bytes(payload, out->code);
    else
        nibbles(payload, out->code);
    if (format_of[type].high)
        fifth_bits(high, out->code);
}

void blocks_fields(enum dtype type, const void *row, int64_t index, struct block_fields *out)
{
    const struct format_traits *f = &format_of[type];
    const uint8_t *p = (const uint8_t *)row +
                       (size_t)(index / f->blocks) * (size_t)format_superblock(type);
    int j = (int)(index % f->blocks);

    assert(blocks_readable(type) && index >= 0);
    memset(out, 0, sizeof *out);
    out->d = f->scale == SCALE_E8M0 ? num_from_e8m0_half(p[f->at])
                                    : num_from_f16(half_at(p + f->at));
    if (f->minimum)
        out->m = num_from_f16(half_at(p + f->at + 2));
    if (f->halves) {
        q6_codes(p, j, out);
    } else if (f->factors) {
        factors(p + 4, j, out);
        k_codes(p + (f->high ? 48 : 16), j, out->code);
        for (int i = 0; i < 32 && f->high; i++)
            out->code[i] |= (uint8_t)((p[16 + i] >> j & 1) << 4);
    } else {
        simple_codes(type, p, out);
    }
}

int blocks_value(enum dtype type, uint8_t code)
{
    return format_of[type].lookup ? blocks_values[format_of[type].lookup][code]
                                  : code - format_of[type].zero;
}

void blocks_to_f32(enum dtype type, const void *row, int64_t n, float *out)
{
    const struct format_traits *f = &format_of[type];
    struct block_fields b;

    assert(blocks_readable(type));
    assert(n % dtype_info(type)->block == 0);
    for (int64_t k = 0; k < n / 32; k++, out += 32) {
        float d, m, half[2];

        blocks_fields(type, row, k, &b);
        d = b.d;
        m = b.m;
        if (f->factors) {
            d = d * (float)b.scale;
            m = m * (float)b.min;
        }
        for (int h = 0; h < 2; h++)
            half[h] = f->halves ? d * (float)b.half[h] : d;
        for (int i = 0; i < 32; i++)
            out[i] = half[i / 16] * (float)blocks_value(type, b.code[i]);
        if (f->minimum)
            for (int i = 0; i < 32; i++)
                out[i] = f->minimum > 0 ? out[i] + m : out[i] - m;
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
        if (format_of[type].scale == SCALE_E8M0)
            return exponents_finite(p + format_of[type].at, n, step);
        return !format_of[type].bits ||
               scales_finite(p + format_of[type].at, n, step, format_of[type].minimum ? 2 : 0);
    }
}
