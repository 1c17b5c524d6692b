/* See turned.h. Packing is bound by such moves, so whole words are moved. */
#include "engine/layout/turned.h"

#include "engine/file/format_traits.h"

#include <string.h>

#define EACH(byte) ((byte)*0x01010101u)

/* The bits of x in the byte `mask`, shifted up. */
static inline uint32_t up(uint32_t x, int by, uint32_t mask)
{
    return x << by & EACH(mask);
}
static inline uint32_t down(uint32_t x, int by, uint32_t mask)
{
    return x >> by & EACH(mask);
}

/* Factor s = 2 * block + half of twelve bytes. */
static uint32_t factor_in_file(const uint8_t *f, int s)
{
    return (uint32_t)((f[s % 8] >> s / 8 * 4 & 15) | (f[8 + s % 4] >> s / 4 * 2 & 3) << 4);
}

static void turn_factors(const uint8_t *f, uint32_t to[3])
{
    for (int i = 0; i < 3; i++)
        to[i] = 0;
    for (int half = 0; half < 2; half++) {
        for (int j = 0; j < 6; j++)
            to[j / 2] |= factor_in_file(f, 2 * j + half) << (16 * half + j % 2 * 6);
        for (int i = 0; i < 2; i++) {
            uint32_t x = factor_in_file(f, 12 + 2 * i + half);

            to[i] |= (x & 15) << (16 * half + 12);
            to[2] |= x >> 4 << (16 * half + 12 + 2 * i);
        }
    }
}

static uint32_t turned_factor(const uint32_t from[3], int s)
{
    int j = s / 2, at = s % 2 * 16;

    if (j < 6)
        return from[j / 2] >> (at + j % 2 * 6) & 63;
    return (from[j - 6] >> (at + 12) & 15) | (from[2] >> (at + 12 + 2 * (j - 6)) & 3) << 4;
}

static void turn_q3_k(const uint8_t *file, uint32_t turned[TURNED_WORDS])
{
    uint32_t words[24];

    memcpy(words, file, sizeof words);
    for (int k = 0; k < 8; k++) {
        uint32_t third = words[k], low = words[8 + k], high = words[16 + k];

        turned[3 * k] = down(low, 0, 0x03) | up(third, 2, 0x04) | up(low, 1, 0x18) |
                        up(third, 4, 0x20) | up(high, 2, 0xc0);
        turned[3 * k + 1] = down(low, 4, 0x03) | down(third, 0, 0x04) | down(low, 3, 0x18) |
                            up(third, 2, 0x20) | down(high, 0, 0xc0);
        turned[3 * k + 2] = down(high, 0, 0x03) | down(third, 2, 0x04) | up(high, 1, 0x18) |
                            down(third, 0, 0xe0);
    }
    turn_factors(file + sizeof words, turned + 24);
}

static void turn_q3_k_back(const uint32_t turned[TURNED_WORDS], uint8_t *file)
{
    uint32_t words[24];
    uint8_t *f = file + sizeof words;

    for (int k = 0; k < 8; k++) {
        uint32_t a = turned[3 * k], b = turned[3 * k + 1], c = turned[3 * k + 2];

        words[k] = down(a, 2, 0x01) | down(a, 4, 0x02) | down(b, 0, 0x04) | down(b, 2, 0x08) |
                   up(c, 2, 0x10) | down(c, 0, 0xe0);
        words[8 + k] = down(a, 0, 0x03) | down(a, 1, 0x0c) | up(b, 4, 0x30) | up(b, 3, 0xc0);
        words[16 + k] = down(c, 0, 0x03) | down(c, 1, 0x0c) | down(a, 2, 0x30) | down(b, 0, 0xc0);
    }
    memcpy(file, words, sizeof words);
    memset(f, 0, 12);
    for (int s = 0; s < 16; s++) {
        uint32_t x = turned_factor(turned + 24, s);

        f[s % 8] |= (uint8_t)((x & 15) << s / 8 * 4);
        f[8 + s % 4] |= (uint8_t)(x >> 4 << s / 4 * 2);
    }
}

/* Of the bits in `mask`, each changes places with the one `by` above it. */
static inline uint32_t swapped(uint32_t x, int by, uint32_t mask)
{
    uint32_t t = (x >> by ^ x) & mask;

    return x ^ t ^ t << by;
}

/* Four by four pairs of bits transposed: its own inverse. */
static uint32_t pairs_turned(uint32_t x)
{
    return swapped(swapped(x, 12, 0x0000f0f0), 6, 0x00cc00cc);
}

/* Eight nibbles' bits, the k-th nibble's to bit k of each byte; and back. */
static uint32_t bits_turned(uint32_t x)
{
    uint32_t w = 0;

    for (int k = 0; k < 8; k++)
        w |= ((x >> 4 * k & 15) * 0x00204081u & 0x01010101u) << k;
    return w;
}

static uint32_t bits_back(uint32_t w)
{
    uint32_t x = 0;

    for (int k = 0; k < 8; k++)
        x |= ((w >> k & 0x01010101u) * 0x01020408u >> 24) << 4 * k;
    return x;
}

bool turned_type(enum dtype type)
{
    return type == DTYPE_Q3_K || type == DTYPE_Q1_0 || type == DTYPE_Q2_0;
}

void turned_from_file(enum dtype type, const uint8_t *file, uint32_t turned[TURNED_WORDS])
{
    if (type == DTYPE_Q3_K) {
        turn_q3_k(file, turned);
        return;
    }
    for (int k = 0; k < format_of[type].words; k++) {
        uint32_t w;

        memcpy(&w, file + 4 * k, 4);
        turned[k] = type == DTYPE_Q1_0 ? bits_turned(w) : pairs_turned(w);
    }
}

void turned_to_file(enum dtype type, const uint32_t turned[TURNED_WORDS], uint8_t *file)
{
    if (type == DTYPE_Q3_K) {
        turn_q3_k_back(turned, file);
        return;
    }
    for (int k = 0; k < format_of[type].words; k++) {
        uint32_t w = type == DTYPE_Q1_0 ? bits_back(turned[k]) : pairs_turned(turned[k]);

        memcpy(file + 4 * k, &w, 4);
    }
}
