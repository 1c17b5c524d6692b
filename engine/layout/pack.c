/* Conversion and packing of weight rows (pack.h). Plain C: it runs once per load, limited by memory
 * and page faults. */
#include "engine/layout/pack.h"
#include "engine/layout/format.h"
#include "engine/base/half.h"
#include "engine/file/blocks.h"

#include <assert.h>
#include <math.h>
#include <string.h>

bool pack_supported(enum dtype type)
{
    return format_of[type].bits || type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 ||
           type == DTYPE_F8;
}

int pack_width(enum dtype type, int width)
{
    assert(width == 0 || width == 8 || width == 16);
    return dtype_info(type)->block > 1 ? width : 0;
}

int pack_groups(int rows, int width)
{
    assert(rows >= 0 && width >= 0);
    return width ? (rows + width - 1) / width : rows;
}

size_t pack_bytes(enum dtype type, int rows, int cols, int width)
{
    const struct dtype_info *d = dtype_info(type);

    if (rows <= 0 || cols <= 0 || cols % d->block || !pack_supported(type) ||
        (width != 0 && d->block == 1))
        return 0;
    return (size_t)pack_groups(rows, width) * (size_t)(width ? width : 1) *
           dtype_row_bytes(type, cols);
}

/* ggml quantize_row_q8_0_ref: the scale is rounded after its reciprocal was computed, halves away
 * from zero. */
static void quantise_q8_0(const float *x, uint8_t *block)
{
    float amax = 0.0f, d, id;
    uint16_t h;

    for (int i = 0; i < 32; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    d = amax / 127.0f;
    id = d != 0.0f ? 1.0f / d : 0.0f;
    h = num_to_f16(d);
    memcpy(block, &h, 2);
    for (int i = 0; i < 32; i++) {
        float v = roundf(x[i] * id);

        /* only NaN and infinity fall outside */
        block[2 + i] = (uint8_t)(int8_t)(v >= -128.0f && v <= 127.0f ? (int)v : 0);
    }
}

/* ggml quantize_row_q4_0_ref: the element of largest magnitude becomes -8. */
static void quantise_q4_0(const float *x, uint8_t *block)
{
    float amax = 0.0f, max = 0.0f, d, id;
    uint16_t h;

    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            max = x[i];
        }
    d = max / -8.0f;
    id = d != 0.0f ? 1.0f / d : 0.0f;
    h = num_to_f16(d);
    memcpy(block, &h, 2);
    for (int i = 0; i < 16; i++) {
        float a = x[i] * id + 8.5f, b = x[16 + i] * id + 8.5f;
        int lo = a > 0.0f ? a < 16.0f ? (int)a : 15 : 0,
            hi = b > 0.0f ? b < 16.0f ? (int)b : 15 : 0;

        block[2 + i] = (uint8_t)(lo | hi << 4);
    }
}

bool row_readable(enum dtype type)
{
    return row_writable(type) || blocks_readable(type) || type == DTYPE_F8;
}

bool row_writable(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 || type == DTYPE_Q8_0 ||
           type == DTYPE_Q4_0;
}

void row_to_f32(enum dtype type, const void *row, int64_t n, float *out)
{
    const uint8_t *p = row;
    uint16_t h;
    float d;

    assert(row_readable(type));
    assert(n >= 0 && n % dtype_info(type)->block == 0);
    switch (type) {
    case DTYPE_F32: memcpy(out, p, (size_t)n * 4); break;
    case DTYPE_F16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&h, p + 2 * i, 2);
            out[i] = num_from_f16(h);
        }
        break;
    case DTYPE_BF16:
        for (int64_t i = 0; i < n; i++) {
            memcpy(&h, p + 2 * i, 2);
            out[i] = num_from_bf16(h);
        }
        break;
    case DTYPE_Q8_0:
        for (int64_t b = 0; b < n / 32; b++, p += 34) {
            memcpy(&h, p, 2);
            d = num_from_f16(h);
            for (int i = 0; i < 32; i++)
                out[b * 32 + i] = (float)(int8_t)p[2 + i] * d;
        }
        break;
    case DTYPE_Q4_0:
        for (int64_t b = 0; b < n / 32; b++, p += 18) {
            memcpy(&h, p, 2);
            d = num_from_f16(h);
            for (int i = 0; i < 16; i++) {
                out[b * 32 + i] = (float)((p[2 + i] & 15) - 8) * d;
                out[b * 32 + 16 + i] = (float)((p[2 + i] >> 4) - 8) * d;
            }
        }
        break;
    case DTYPE_F8: f8_to_f32(row, n, out); break;
    default: blocks_to_f32(type, row, n, out); break;
    }
}

void row_from_f32(enum dtype type, const float *x, int64_t n, void *row)
{
    uint8_t *p = row;
    uint16_t h;

    assert(row_writable(type));
    assert(n >= 0 && n % dtype_info(type)->block == 0);
    switch (type) {
    case DTYPE_F32: memcpy(p, x, (size_t)n * 4); break;
    case DTYPE_F16:
        for (int64_t i = 0; i < n; i++) {
            h = num_to_f16(x[i]);
            memcpy(p + 2 * i, &h, 2);
        }
        break;
    case DTYPE_BF16:
        for (int64_t i = 0; i < n; i++) {
            h = num_to_bf16(x[i]);
            memcpy(p + 2 * i, &h, 2);
        }
        break;
    case DTYPE_Q8_0:
        for (int64_t b = 0; b < n / 32; b++)
            quantise_q8_0(x + b * 32, p + b * 34);
        break;
    case DTYPE_Q4_0:
        for (int64_t b = 0; b < n / 32; b++)
            quantise_q4_0(x + b * 32, p + b * 18);
        break;
    default: break;
    }
}

static void pack_group(uint8_t *dst, enum dtype to, int width, const uint8_t *src, enum dtype from,
                       int rows, int cols, int group)
{
    const struct dtype_info *d = dtype_info(to);
    int blocks = cols / d->block;
    size_t src_row = dtype_row_bytes(from, cols), src_block = dtype_row_bytes(from, d->block);
    static const uint8_t zero[256]; /* no block of a file is larger */
    uint8_t rounded[4][64];         /* Q8_0, Q4_0: the only formats that rows are rounded to here */
    float x[32];

    for (int b = 0; b < blocks; b++, dst += d->bytes * width) {
        /* sixteen parallel rows are too many streams for the hardware: the next group is prefetched
         * as a single one */
        for (size_t i = 0; i < src_block * (size_t)width; i += 64)
            __builtin_prefetch(
                src +
                ((size_t)(group + 1) * (size_t)width * (size_t)blocks + (size_t)(b * width)) *
                    src_block +
                i);
        for (int r = 0; r < width; r += 4) {
            const uint8_t *block[4];

            for (int i = 0; i < 4; i++) {
                int row = group * width + r + i;

                block[i] = zero;
                if (row >= rows)
                    continue;
                block[i] = src + (size_t)row * src_row + (size_t)b * src_block;
                if (from != to) {
                    row_to_f32(from, block[i], 32, x);
                    row_from_f32(to, x, 32, rounded[i]);
                    block[i] = rounded[i];
                }
            }
            format_pack(to, dst, width, r, block);
        }
    }
}

void pack_one(void *dst, enum dtype type, int width, const void *src, int rows, int cols, int group)
{
    assert(pack_supported(type) && (width == 8 || width == 16));
    assert(group >= 0 && group < pack_groups(rows, width));
    pack_group(dst, type, width, src, type, rows, cols, group);
}

static void convert_row(uint8_t *dst, enum dtype to, const uint8_t *src, enum dtype from, int cols)
{
    float x[256];

    if (from == to) {
        memcpy(dst, src, dtype_row_bytes(to, cols));
        return;
    }
    for (int c = 0; c < cols; c += 256) {
        int n = cols - c < 256 ? cols - c : 256;

        row_to_f32(from, src, n, x);
        row_from_f32(to, x, n, dst);
        src += dtype_row_bytes(from, n);
        dst += dtype_row_bytes(to, n);
    }
}

void pack_rows(void *dst, enum dtype to, int width, const void *src, enum dtype from, int rows,
               int cols, int first, int count)
{
    assert(pack_bytes(to, rows, cols, width) > 0);
    assert(from == to || row_readable(from));
    assert(first >= 0 && count >= 0 && first + count <= pack_groups(rows, width));
    for (int g = first; g < first + count; g++) {
        uint8_t *at = (uint8_t *)dst + (size_t)g * (size_t)width * dtype_row_bytes(to, cols);

        if (width)
            pack_group(at, to, width, src, from, rows, cols, g);
        else
            convert_row((uint8_t *)dst + (size_t)g * dtype_row_bytes(to, cols), to,
                        (const uint8_t *)src + (size_t)g * dtype_row_bytes(from, cols), from, cols);
    }
}
