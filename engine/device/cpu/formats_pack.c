/* Packing of the formats in formats.h. Runs once per load, by many threads: word operations on whole rows of bits instead of the field by
 * field reading of engine/file/blocks.c, against which the tests compare it. */
#include "engine/device/cpu/formats.h"

#include <string.h>

#define LOW8 0x0f0f0f0f0f0f0f0full

bool format_known(enum dtype type)
{
#define X(id, name, blocks, head, bytes) if (type == id) return true;
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

/* n words of row r, each to its place between those of the other rows. */
static void put_words(uint8_t *to, int width, int r, const void *words, int n)
{
    for (int k = 0; k < n; k++)
        memcpy(to + 4 * (k * width + r), (const uint8_t *)words + 4 * k, 4);
}

/* nibble k: the high bits of elements 4k .. 4k+3. `to` was zeroed. */
static void put_high(uint8_t *to, int width, int r, uint32_t bits)
{
    for (int k = 0; k < 8; k++)
        to[k * width / 2 + r / 2] |= (uint8_t)((bits >> (4 * k) & 15) << (r & 1) * 4);
}

/* 32 elements whose codes are the low (shift 0) or high (shift 4) nibbles of 32 bytes. */
static void put_nibbles(uint8_t *to, int width, int r, const uint8_t *q, int shift)
{
    uint64_t payload[2];

    for (int i = 0; i < 2; i++)
        payload[i] = (long_at(q + 8 * i) >> shift & LOW8) | (long_at(q + 16 + 8 * i) >> shift & LOW8) << 4;
    put_words(to, width, r, payload, 4);
}

/* Bit j of 32 bytes, element i's being byte i's. The product moves the four bits of a word into its top byte. */
static uint32_t bit_plane(const uint8_t *bytes, int j)
{
    uint32_t bits = 0;

    for (int k = 0; k < 8; k++)
        bits |= ((word_at(bytes + 4 * k) >> j & 0x01010101u) * 0x01020408u >> 24 & 15u) << (4 * k);
    return bits;
}

static void put_simple(enum dtype type, uint8_t *to, int width, int r, const uint8_t *p)
{
    memcpy(to + 2 * r, p, 2);
    to += 2 * width;
    p += 2;
    if (format_has_min(type)) {
        memcpy(to + 2 * r, p, 2);
        to += 2 * width;
        p += 2;
    }
    if (format_has_high(type)) {
        put_high(to, width, r, word_at(p));
        to += 4 * width;
        p += 4;
    }
    put_words(to, width, r, p, 4);
}

static void put_k(enum dtype type, uint8_t *to, int width, int r, const uint8_t *p)
{
    const uint8_t *high = p + 16, *q = type == DTYPE_Q5_K ? p + 48 : p + 16;

    memcpy(to + 2 * r, p, 2);
    memcpy(to + 2 * width + 2 * r, p + 2, 2);
    put_words(to + 4 * width, width, r, p + 4, 3);
    to += 16 * width;
    for (int j = 0; j < 8; j++) {
        if (type == DTYPE_Q5_K) {
            put_high(to, width, r, bit_plane(high, j));
            to += 4 * width;
        }
        put_nibbles(to, width, r, q + j / 2 * 32, (j & 1) * 4);
        to += 16 * width;
    }
}

static void put_q6_k(uint8_t *to, int width, int r, const uint8_t *p)
{
    memcpy(to + 2 * r, p + 208, 2);
    put_words(to + 2 * width, width, r, p + 192, 4);
    to += 18 * width;
    for (int j = 0; j < 8; j++, to += 24 * width) {
        const uint8_t *high = p + 128 + j / 4 * 32;
        uint32_t high2[2] = {0, 0};

        for (int k = 0; k < 8; k++)
            high2[k / 4] |= (word_at(high + 4 * k) >> 2 * (j & 3) & 0x03030303u) << 2 * (k & 3);
        put_words(to, width, r, high2, 2);
        put_nibbles(to + 8 * width, width, r, p + j / 4 * 64 + (j & 1) * 32, (j & 2) * 2);
    }
}

void format_pack_group(void *dst, enum dtype type, int width, const void *src, int rows, int cols, int group)
{
    const struct dtype_info *d = dtype_info(type);
    int units = cols / d->block;
    uint8_t *to = dst;

    memset(dst, 0, (size_t)units * (size_t)(d->bytes * width));
    for (int u = 0; u < units; u++, to += d->bytes * width)
        for (int r = 0; r < width && group * width + r < rows; r++) {
            const uint8_t *p = (const uint8_t *)src + ((size_t)(group * width + r) * (size_t)units + (size_t)u) * (size_t)d->bytes;

            if (type == DTYPE_Q6_K)
                put_q6_k(to, width, r, p);
            else if (format_blocks(type) == 8)
                put_k(type, to, width, r, p);
            else
                put_simple(type, to, width, r, p);
        }
}
