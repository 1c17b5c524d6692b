/* Packing of the quantised formats. Runs once per load, by many threads: word operations on whole
 * rows of bits instead of engine/file/blocks.c's field by field reading, with which the tests
 * compare it. */
#include "engine/layout/format.h"
#include "engine/layout/interleave.h"
#include "engine/layout/turned.h"

#include <assert.h>
#include <string.h>

#define LOW8 0x0f0f0f0f0f0f0f0full

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

/* Fifth bits of 32 elements, element i's being bit i: bit k of byte j of the result is element 4k +
 * j's. */
static uint32_t fifth_bits(uint32_t bits)
{
    uint32_t w = 0;

    for (int j = 0; j < 4; j++) {
        uint32_t x = bits >> j & 0x11111111u;

        x = (x | x >> 3) & 0x03030303u;
        x = (x | x >> 6) & 0x000f000fu;
        w |= ((x | x >> 12) & 0xffu) << 8 * j;
    }
    return w;
}

/* Those of rows r .. r+3. */
static void put_high(uint8_t *to, int r, const uint32_t bits[4])
{
    for (int i = 0; i < 4; i++) {
        uint32_t w = fifth_bits(bits[i]);

        memcpy(to + 4 * (r + i), &w, 4);
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

/* A superblock of one block. Payloads are interleaved unchanged. */
static void put_simple(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    const struct format_traits *f = &format_of[type];
    const int head = format_head(type), payload = head + format_payload(type),
              scale = SCALE_BYTES(f->scale);
    const uint8_t *q[4];
    uint32_t high[4];

    for (int i = 0; i < 4; i++) {
        memcpy(to + scale * (r + i), p[i], (size_t)scale);
        if (f->minimum)
            memcpy(to + 2 * (width + r + i), p[i] + 2, 2);
        if (f->high)
            high[i] = word_at(p[i] + head);
        q[i] = p[i] + payload;
    }
    if (f->high)
        put_high(to + head * width, r, high);
    interleave4(q, f->bits, f->bits == 8 ? FORMAT_FLIP : 0, to + payload * width + 4 * r,
                4 * (size_t)width);
}

/* Superblocks with 6-bit factors. */
static void put_factors(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    uint8_t payload[4][16];
    const uint8_t *rows[4] = {payload[0], payload[1], payload[2], payload[3]};
    size_t step = 4 * (size_t)width;
    bool fifth = format_of[type].high;
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
            high[i] = fifth ? bit_plane(p[i] + 16, j) : 0;
            pair_nibbles(p[i] + (fifth ? 48 : 16) + j / 2 * 32, (j & 1) * 4, payload[i]);
        }
        if (fifth) {
            put_high(to, r, high);
            to += 4 * width;
        }
        interleave4(rows, 4, 0, to + 4 * r, step);
        to += 16 * width;
    }
}

/* IQ4_XS: the factors' high and low bits, nibbles. */
static void put_signed_factors(uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    size_t step = 4 * (size_t)width;

    for (int i = 0; i < 4; i++) {
        memcpy(to + 2 * (r + i), p[i], 2);
        memcpy(to + 2 * (width + r + i), p[i] + 2, 2);
        memcpy(to + 4 * (width + r + i), p[i] + 4, 4);
    }
    to += 8 * width;
    for (int j = 0; j < 8; j++, to += 16 * width) {
        const uint8_t *rows[4];

        for (int i = 0; i < 4; i++)
            rows[i] = p[i] + 8 + 16 * j;
        interleave4(rows, 4, 0, to + 4 * r, step);
    }
}

/* Words unchanged, or turned. */
static void put_words(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const p[4])
{
    const struct format_traits *f = &format_of[type];
    const int head = format_head(type), whole = f->words / 4 * 4;
    const uint8_t *words[4];
    uint32_t turned[4][TURNED_WORDS];

    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < head / 2; k++)
            memcpy(to + 2 * (k * width + r + i), p[i] + f->at + 2 * k, 2);
        words[i] = p[i] + format_words_at(type);
        if (turned_type(type)) {
            turned_from_file(type, words[i], turned[i]);
            words[i] = (const uint8_t *)turned[i];
        }
    }
    to += head * width + 4 * r;
    interleave4(words, whole, 0, to, 4 * (size_t)width);
    for (int k = whole; k < f->words; k++)
        for (int i = 0; i < 4; i++)
            memcpy(to + 4 * (k * width + i), words[i] + 4 * k, 4);
}

/* Q6_K: 8-bit factors, two high bits. */
static void put_halves(uint8_t *to, int width, int r, const uint8_t *const p[4])
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

void format_pack(enum dtype type, uint8_t *to, int width, int r, const uint8_t *const from[4])
{
    assert(format_of[type].bits && (width == 8 || width == 16) && r % 4 == 0 && r < width);
    if (format_of[type].words)
        put_words(type, to, width, r, from);
    else if (format_of[type].halves)
        put_halves(to, width, r, from);
    else if (format_of[type].factors == 2)
        put_signed_factors(to, width, r, from);
    else if (format_of[type].factors)
        put_factors(type, to, width, r, from);
    else
        put_simple(type, to, width, r, from);
}
