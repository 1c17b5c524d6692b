/* See row_groups.h: llama.cpp's formats, repacked by ik_llama.cpp. */
#include "engine/file/row_groups.h"

#include "engine/file/format_traits.h"

#include <assert.h>
#include <string.h>

/* Where column c of 32 of row r of four lies: a byte and the half of it. */
static int nibble_byte(int r, int c)
{
    return 4 * r + c % 4 + 16 * (c / 16) + 32 * (c / 4 % 2);
}
static int nibble_shift(int c)
{
    return c / 8 % 2 * 4;
}

static int nibble_of(const uint8_t *from, int r, int c)
{
    return from[nibble_byte(r, c)] >> nibble_shift(c) & 15;
}

/* Of row r of eight, whose columns c and c + 16 share a byte. */
static void put_bytes_of_eight(const uint8_t *from, int r, int n, uint8_t *out)
{
    for (int c = 0; c < n; c++)
        out[c] = from[32 * (c / 4) + 4 * r + c % 4];
}

static void put_iq4_nl(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    for (int c = 0; c < 16; c++)
        out[2 + c] = (uint8_t)(nibble_of(from + 8, r, c) | nibble_of(from + 8, r, 16 + c) << 4);
}

static void put_iq4_xs(const uint8_t *from, int r, uint8_t *out)
{
    unsigned high = 0;

    memcpy(out, from + 2 * r, 2);
    memset(out + 4, 0, 4);
    for (int j = 0; j < 8; j++) {
        int at = 8 * j + r;
        const uint8_t *q = from + 64 + 128 * j + 4 * r;

        high |= (unsigned)(from[16 + at % 16] >> at / 16 * 2 & 3) << 2 * j;
        out[4 + j / 2] |= (uint8_t)((from[32 + at % 32] >> at / 32 * 4 & 15) << j % 2 * 4);
        for (int c = 0; c < 16; c++)
            out[8 + 16 * j + c] = (uint8_t)((q[32 * (c / 8) + c % 4] >> c / 4 % 2 * 4 & 15) |
                                            (q[32 * (2 + c / 8) + c % 4] >> c / 4 % 2 * 4 & 15)
                                                << 4);
    }
    out[2] = (uint8_t)high;
    out[3] = (uint8_t)(high >> 8);
}

/* Six bits of each block's factor and of its minimum's, as Q4_K and Q5_K pack them. */
static void put_factors(const uint8_t *high, const uint8_t *low, int r, uint8_t *out)
{
    for (int j = 0; j < 8; j++) {
        int at = 4 * j + r, more = high[at % 16] >> at / 16 * 4,
            d = (low[at] & 15) | (more & 3) << 4, m = low[at] >> 4 | (more & 12) << 2;

        if (j < 4) {
            out[j] = (uint8_t)d;
            out[4 + j] = (uint8_t)m;
            continue;
        }
        out[j - 4] |= (uint8_t)((d >> 4) << 6);
        out[j] |= (uint8_t)((m >> 4) << 6);
        out[4 + j] = (uint8_t)((d & 15) | (m & 15) << 4);
    }
}

static void put_k(bool five, const uint8_t *from, int r, uint8_t *out)
{
    const uint8_t *high = from + 64, *codes = high + (five ? 128 : 0);
    uint8_t *to = out + (five ? 48 : 16);

    memcpy(out, from + 2 * r, 2);
    memcpy(out + 2, from + 8 + 2 * r, 2);
    put_factors(from + 16, from + 32, r, out + 4);
    memset(out + 16, 0, five ? 160 : 128);
    for (int j = 0; j < 8; j++, codes += 64, high += 16)
        for (int c = 0; c < 32; c++) {
            to[j / 2 * 32 + c] |= (uint8_t)(nibble_of(codes, r, c) << j % 2 * 4);
            if (five)
                out[16 + c] |=
                    (uint8_t)((high[4 * r + c % 4] >> (c / 16 * 4 + c / 4 % 2 * 2 + c / 8 % 2) & 1)
                              << j);
        }
}

static void put_q6_k(const uint8_t *from, int r, uint8_t *out)
{
    const uint8_t *high = from + 72, *low = from + 328;

    memset(out, 0, 192);
    memcpy(out + 208, from + 2 * r, 2);
    for (int j = 0; j < 8; j++, low += 64, high += 32) {
        /* the file's halves of 128 columns: four blocks share 64 bytes and, with all bits, 32 */
        uint8_t *to = out + j / 4 * 64 + j % 2 * 32, *above = out + 128 + j / 4 * 32;

        for (int h = 0; h < 2; h++)
            out[192 + 2 * j + h] = from[8 + 8 * j + r + 4 * h];
        for (int c = 0; c < 32; c++) {
            int x = high[4 * r + c % 4 + 16 * (c / 16)] >> (c / 4 % 2 * 4 + c / 8 % 2 * 2) & 3;

            to[c] |= (uint8_t)(nibble_of(low, r, c) << j % 4 / 2 * 4);
            above[c] |= (uint8_t)(x << j % 4 * 2);
        }
    }
}

/* Four rows' scales, then blocks of 32 columns. */
static void put_iq1_s(const uint8_t *group, int r, int64_t index, uint8_t *out)
{
    const uint8_t *from = group + 8 + (size_t)index * 8 * 24;

    memcpy(out, group + 2 * r, 2);
    for (int j = 0; j < 8; j++, from += 24) {
        for (int l = 0; l < 4; l++)
            out[2 + 4 * j + l] = from[4 * l + r];
        memcpy(out + 34 + 2 * j, from + 16 + 2 * r, 2);
    }
}

void row_group_plain(enum dtype type, const uint8_t *group, int rows, int r, int64_t index,
                     uint8_t *out)
{
    const uint8_t *from = group + (size_t)index * (size_t)rows * (size_t)dtype_info(type)->bytes;

    assert(r >= 0 && r < rows);
    switch (type) {
    case DTYPE_Q8_0:
    case DTYPE_Q4_0:
        memcpy(out, from + 2 * r, 2);
        put_bytes_of_eight(from + 16, r, type == DTYPE_Q8_0 ? 32 : 16, out + 2);
        break;
    case DTYPE_MXFP4:
        *out = from[r];
        put_bytes_of_eight(from + 8, r, 16, out + 1);
        break;
    case DTYPE_IQ4_NL: put_iq4_nl(from, r, out); break;
    case DTYPE_IQ4_XS: put_iq4_xs(from, r, out); break;
    case DTYPE_Q4_K: put_k(false, from, r, out); break;
    case DTYPE_Q5_K: put_k(true, from, r, out); break;
    case DTYPE_Q6_K: put_q6_k(from, r, out); break;
    case DTYPE_IQ1_S: put_iq1_s(group, r, index, out); break;
    default: assert(false);
    }
}
