/* Packing of the formats in format.h. Runs once per load, by many threads: word operations on whole
 * rows of bits instead of the field by field reading of engine/file/blocks.c, against which the
 * tests compare it. */
#include "engine/layout/format.h"
#include "engine/layout/interleave.h"

#include <assert.h>
#include <string.h>

#define LOW8 0x0f0f0f0f0f0f0f0full

bool format_known(enum dtype type)
{
#define X(id, name, blocks, head, bytes) \
    if (type == id)                      \
        return true;
    FORMATS(X)
#undef X
    return false;
}

static uint32_t word_at(const uint8_t *p)
{
    uint32_t w;

    memcpy(&w, p, 4);
    return w;
}

static uint64_t long_at(const uint8_t *p)
{
    uint64_t w;

    memcpy(&w, p, 8);
    return w;
}

/* Fifth bits of rows r .. r+3: for each word the four rows' bits are 16 neighbours. */
static void put_high(uint8_t *to, int width, int r, const uint32_t bits[4])
{
    for (int k = 0; k < 8; k++) {
        uint16_t v = (uint16_t)((bits[0] >> 4 * k & 15) | (bits[1] >> 4 * k & 15) << 4 |
                                (bits[2] >> 4 * k & 15) << 8 | (bits[3] >> 4 * k & 15) << 12);

        memcpy(to + k * width / 2 + r / 2, &v, 2);
    }
}

/* 32 elements whose codes are the low (shift 0) or high (shift 4) nibbles of 32 bytes: their
 * payload. */
static void pair_nibbles(const uint8_t *q, int shift, uint8_t *payload)
{
    for (int i = 0; i < 2; i++) {
        uint64_t w = (long_at(q + 8 * i) >> shift & LOW8) |
                     (long_at(q + 16 + 8 * i) >> shift & LOW8) << 4;

        memcpy(payload + 8 * i, &w, 8);
    }
}

/* Bit j of 32 bytes, element i's being byte i's. */
static uint32_t bit_plane(const uint8_t *bytes, int j)
{
    uint32_t bits = 0;

#if defined(__SSE2__)
    for (int h = 0; h < 2; h++)
        bits |= (uint32_t)_mm_movemask_epi8(_mm_sll_epi64(
                    _mm_loadu_si128((const void *)(bytes + 16 * h)), _mm_cvtsi32_si128(7 - j)))
                << 16 * h;
#else
    for (int i = 0; i < 32; i++)
        bits |= (uint32_t)(bytes[i] >> j & 1) << i;
#endif
    return bits;
}

/* Bits shift, shift+1 of 16 bytes: byte j of the result has those of bytes j, 4+j, 8+j, 12+j,
 * upwards. */
static uint32_t bit_pairs(const uint8_t *bytes, int shift)
{
#if defined(__SSE2__)
    __m128i x = _mm_and_si128(_mm_srl_epi16(_mm_loadu_si128((const void *)bytes),
                                            _mm_cvtsi32_si128(shift)),
                              _mm_set1_epi8(3));

    x = _mm_mullo_epi16(x, _mm_setr_epi16(1, 1, 4, 4, 16, 16, 64, 64));
    x = _mm_or_si128(x, _mm_srli_si128(x, 8));
    return (uint32_t)_mm_cvtsi128_si32(_mm_or_si128(x, _mm_srli_si128(x, 4)));
#else
    uint32_t w = 0;

    for (int k = 0; k < 4; k++)
        w |= (word_at(bytes + 4 * k) >> shift & 0x03030303u) << 2 * k;
    return w;
#endif
}

/* One block of the file of four rows, to rows r .. r+3 of the unit at `to`. Payloads are made row
 * by row, then interleaved together. */
static void put_simple(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    const uint8_t *q[4];
    uint32_t high[4];
    int skip = format_head(type);

    for (int i = 0; i < 4; i++) {
        memcpy(to + 2 * (r + i), p[i], 2);
        if (format_has_min(type))
            memcpy(to + 2 * (width + r + i), p[i] + 2, 2);
        high[i] = word_at(p[i] + skip);
        q[i] = p[i] + skip + (format_has_high(type) ? 4 : 0);
    }
    if (format_has_high(type))
        put_high(to + skip * width, width, r, high);
    interleave4(q, 4, 0, to + (dtype_info(type)->bytes - 16) * width + 4 * r, 4 * (size_t)width);
}

static void put_k(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    uint8_t payload[4][16];
    const uint8_t *rows[4] = {payload[0], payload[1], payload[2], payload[3]};
    size_t step = 4 * (size_t)width;
    uint32_t high[4];

    for (int i = 0; i < 4; i++) {
        memcpy(to + 2 * (r + i), p[i], 2);
        memcpy(to + 2 * (width + r + i), p[i] + 2, 2);
        for (int k = 0; k < 3; k++)
            memcpy(to + 4 * width + 4 * (k * width + r + i), p[i] + 4 + 4 * k, 4);
    }
    to += 16 * width;
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 4; i++) {
            high[i] = type == DTYPE_Q5_K ? bit_plane(p[i] + 16, j) : 0;
            pair_nibbles(p[i] + (type == DTYPE_Q5_K ? 48 : 16) + j / 2 * 32, (j & 1) * 4,
                         payload[i]);
        }
        if (type == DTYPE_Q5_K) {
            put_high(to, width, r, high);
            to += 4 * width;
        }
        interleave4(rows, 4, 0, to + 4 * r, step);
        to += 16 * width;
    }
}

static void put_q6_k(uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    uint8_t payload[4][16];
    const uint8_t *rows[4] = {payload[0], payload[1], payload[2], payload[3]},
                  *halves[4] = {p[0] + 192, p[1] + 192, p[2] + 192, p[3] + 192};
    size_t step = 4 * (size_t)width;

    for (int i = 0; i < 4; i++)
        memcpy(to + 2 * (r + i), p[i] + 208, 2);
    interleave4(halves, 4, 0, to + 2 * width + 4 * r, step);
    to += 18 * width;
    for (int j = 0; j < 8; j++, to += 24 * width) {
        for (int i = 0; i < 4; i++) {
            for (int h = 0; h < 2; h++) {
                uint32_t w = bit_pairs(p[i] + 128 + j / 4 * 32 + 16 * h, 2 * (j & 3));

                memcpy(to + 4 * (h * width + r + i), &w, 4);
            }
            pair_nibbles(p[i] + j / 4 * 64 + (j & 1) * 32, (j & 2) * 2, payload[i]);
        }
        interleave4(rows, 4, 0, to + 8 * width + 4 * r, step);
    }
}

void format_pack_group(void *dst, enum dtype type, int width, const void *src, int rows, int cols,
                       int group)
{
    static const uint8_t zero[256];
    const struct dtype_info *d = dtype_info(type);
    int units = cols / d->block;
    uint8_t *to = dst;

    assert(format_known(type) && (width == 8 || width == 16));
    assert(cols % dtype_info(type)->block == 0 && group * width < rows);
    for (int u = 0; u < units; u++, to += d->bytes * width)
        for (int r = 0; r < width; r += 4) {
            const uint8_t *p[4];

            for (int i = 0; i < 4; i++)
                p[i] = group * width + r + i < rows
                           ? (const uint8_t *)src +
                                 ((size_t)(group * width + r + i) * (size_t)units + (size_t)u) *
                                     (size_t)d->bytes
                           : zero;
            if (type == DTYPE_Q6_K)
                put_q6_k(to, width, r, p);
            else if (format_blocks(type) == 8)
                put_k(type, to, width, r, p);
            else
                put_simple(type, to, width, r, p);
        }
}
