/* See row_groups.h: llama.cpp's formats, repacked by ik_llama.cpp. */
#include "engine/file/row_groups.h"

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
static void put_iq1_s(const uint8_t *group, const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, group + 2 * r, 2);
    for (int j = 0; j < 8; j++, from += 24) {
        for (int l = 0; l < 4; l++)
            out[2 + 4 * j + l] = from[4 * l + r];
        memcpy(out + 34 + 2 * j, from + 16 + 2 * r, 2);
    }
}

/* The same; of eight columns three bits of the point and the eighth's sign are a nibble. */
static void put_iq1_m(const uint8_t *group, const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, group + 2 * r, 2);
    for (int j = 0; j < 8; j++, from += 28) {
        for (int l = 0; l < 4; l++)
            out[2 + 4 * j + l] = from[4 * l + r];
        for (int h = 0; h < 2; h++)
            out[34 + 2 * j + h] = from[16 + 4 * h + r];
        out[50 + j] = from[24 + r];
    }
}

static void put_q5_0(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    memset(out + 2, 0, 20);
    for (int c = 0; c < 32; c++) {
        int high = from[8 + 4 * r + c % 4] >> (c / 16 + c / 4 % 2 * 2 + c / 8 % 2 * 4) & 1;

        out[2 + c / 8] |= (uint8_t)(high << c % 8);
        out[6 + c % 16] |= (uint8_t)(nibble_of(from + 24, r, c) << c / 16 * 4);
    }
}

/* Codes of six bits as bytes: 32 below them. */
static void put_q6_0_group(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    for (int c = 0; c < 32; c++) {
        int high = from[8 + 4 * r + c % 4 + c / 16 * 16] >> (c / 4 % 2 * 2 + c / 8 % 2 * 4) & 3;

        out[2 + c] = (uint8_t)((nibble_of(from + 40, r, c) | high << 4) - 32);
    }
}

static void put_q6_0(const uint8_t *from, uint8_t *out)
{
    memcpy(out, from, 2);
    for (int c = 0; c < 32; c++) {
        int high = from[2 + c % 8] >> (c / 8 % 2 * 4 + c / 16 * 2) & 3;

        out[2 + c] = (uint8_t)(((from[10 + c % 16] >> c / 16 * 4 & 15) | high << 4) - 32);
    }
}

/* Blocks of 256 columns with one scale in groups of 8 rows, or of 16, whose codes are 128 more. */
static void put_q8_k(const uint8_t *from, int rows, int r, int64_t part, uint8_t *out)
{
    const uint8_t *codes = from + 2 * rows + 4 * r + 4 * rows * 8 * part;

    memcpy(out, from + 2 * r, 2);
    for (int c = 0; c < 32; c++)
        out[2 + c] = codes[4 * rows * (c / 4) + c % 4] ^ (rows == 16 ? 0x80 : 0);
}

/* Eight rows' F32 scales, then four columns of each. */
static void put_q8_kv(const uint8_t *group, const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, group + 4 * r, 4);
    for (int c = 0; c < 128; c++)
        out[4 + c] = from[32 * (c / 4) + 4 * r + c % 4];
}

/* Codes of two bits: of row r, column c of block j. */
static int two_bits_of(const uint8_t *codes, int r, int j, int c)
{
    return codes[32 * j + 4 * r + c % 4 + c / 16 * 16] >> c / 4 % 4 * 2 & 3;
}

static void put_q2_k(const uint8_t *from, int r, uint8_t *out)
{
    memset(out + 16, 0, 64);
    memcpy(out + 80, from + 2 * r, 2);
    memcpy(out + 82, from + 8 + 2 * r, 2);
    for (int j = 0; j < 8; j++) {
        for (int h = 0; h < 2; h++)
            out[2 * j + h] = from[16 + 8 * j + 4 * h + r];
        for (int c = 0; c < 32; c++)
            out[16 + j / 4 * 32 + c] |= (uint8_t)(two_bits_of(from + 80, r, j, c) << j % 4 * 2);
    }
}

static void put_q3_k(const uint8_t *from, int r, uint8_t *out)
{
    memset(out, 0, 108);
    memcpy(out + 108, from + 2 * r, 2);
    for (int j = 0; j < 8; j++) {
        for (int k = 2 * j; k < 2 * j + 2; k++) {
            int at = 4 * k + r;

            out[96 + k % 8] |= (uint8_t)((from[24 + at % 32] >> at / 32 * 4 & 15) << k / 8 * 4);
            out[104 + k % 4] |= (uint8_t)((from[8 + at % 16] >> at / 16 * 2 & 3) << k / 4 * 2);
        }
        for (int c = 0; c < 32; c++) {
            out[c] |= (uint8_t)((from[56 + 16 * j + 4 * r + c % 4] >> c / 4 & 1) << j);
            out[32 + j / 4 * 32 + c] |= (uint8_t)(two_bits_of(from + 184, r, j, c) << j % 4 * 2);
        }
    }
}

/* A block's word of signs, seven bits for each eight columns, and the factor above: of four bytes,
 * whose lowest bits are the factor's and whose others differ from the sign before. */
static void put_signs(const uint8_t *from, uint8_t *out)
{
    uint32_t word = 0;

    for (int i = 0; i < 4; i++) {
        unsigned x = from[i] & 0xfeu;

        word |= ((x ^ x >> 1) & 127u) << 7 * i | (from[i] & 1u) << (28 + i);
    }
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(word >> 8 * i);
}

static void put_iq2_xxs(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    for (int j = 0; j < 8; j++) {
        memcpy(out + 2 + 8 * j, from + 136 + 16 * j + 4 * r, 4);
        put_signs(from + 8 + 16 * j + 4 * r, out + 6 + 8 * j);
    }
}

static void put_iq2_xs(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 4; i++) {
            const uint8_t *p = from + 8 + 2 * (16 * j + 4 * r + i);
            unsigned x = (unsigned)(p[0] | p[1] << 8), s = x >> 9;

            x = (x & 511) | ((s ^ s << 1) & 127) << 9;
            out[2 + 2 * (4 * j + i)] = (uint8_t)x;
            out[3 + 2 * (4 * j + i)] = (uint8_t)(x >> 8);
        }
        out[66 + j] = from[264 + 4 * j + r];
    }
}

static void put_iq2_s(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    for (int j = 0; j < 8; j++) {
        memcpy(out + 2 + 4 * j, from + 8 + 16 * j + 4 * r, 4);
        memcpy(out + 34 + 4 * j, from + 168 + 16 * j + 4 * r, 4);
        out[66 + j] = from[136 + 4 * j + r];
        out[74 + j] = from[296 + 4 * j + r];
    }
}

static void put_iq3_xxs(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    for (int j = 0; j < 8; j++) {
        memcpy(out + 2 + 8 * j, from + 136 + 32 * j + 8 * r, 8);
        put_signs(from + 8 + 16 * j + 4 * r, out + 66 + 4 * j);
    }
}

static void put_iq3_s(const uint8_t *from, int r, uint8_t *out)
{
    memcpy(out, from + 2 * r, 2);
    memset(out + 74, 0, 36);
    for (int j = 0; j < 8; j++) {
        int at = 4 * j + r;

        for (int i = 0; i < 8; i++)
            out[2 + 8 * j + i] = from[8 + 32 * j + r + i % 4 * 8 + i / 4 * 4];
        out[66 + j] = from[264 + at];
        for (int c = 0; c < 32; c++)
            out[74 + 4 * j + c / 8] |= (uint8_t)((from[296 + 16 * j + 4 * r + c % 4] >> c / 4 & 1)
                                                 << c % 8);
        out[106 + j / 2] |= (uint8_t)((from[424 + at % 16] >> at / 16 * 4 & 15) << j % 2 * 4);
    }
}

void row_group_plain(enum row_group_plain type, const uint8_t *group, const uint8_t *from, int r,
                     int64_t part, uint8_t *out)
{
    assert(r >= 0);
    switch (type) {
    case PLAIN_Q6_0: put_q6_0(from, out); break;
    case PLAIN_Q6_0_R4: put_q6_0_group(from, r, out); break;
    case PLAIN_Q8_K_R8: put_q8_k(from, 8, r, part, out); break;
    case PLAIN_Q8_K_R16: put_q8_k(from, 16, r, part, out); break;
    case PLAIN_Q8_KV_R8: put_q8_kv(group, from, r, out); break;
    case PLAIN_Q8_0_R8:
    case PLAIN_Q4_0_R8:
        memcpy(out, from + 2 * r, 2);
        put_bytes_of_eight(from + 16, r, type == PLAIN_Q8_0_R8 ? 32 : 16, out + 2);
        break;
    case PLAIN_MXFP4_R8:
        *out = from[r];
        put_bytes_of_eight(from + 8, r, 16, out + 1);
        break;
    case PLAIN_Q5_0_R4: put_q5_0(from, r, out); break;
    case PLAIN_Q2_K_R4: put_q2_k(from, r, out); break;
    case PLAIN_Q3_K_R4: put_q3_k(from, r, out); break;
    case PLAIN_Q4_K_R4: put_k(false, from, r, out); break;
    case PLAIN_Q5_K_R4: put_k(true, from, r, out); break;
    case PLAIN_Q6_K_R4: put_q6_k(from, r, out); break;
    case PLAIN_IQ2_XXS_R4: put_iq2_xxs(from, r, out); break;
    case PLAIN_IQ2_XS_R4: put_iq2_xs(from, r, out); break;
    case PLAIN_IQ2_S_R4: put_iq2_s(from, r, out); break;
    case PLAIN_IQ3_XXS_R4: put_iq3_xxs(from, r, out); break;
    case PLAIN_IQ3_S_R4: put_iq3_s(from, r, out); break;
    case PLAIN_IQ1_S_R4: put_iq1_s(group, from, r, out); break;
    case PLAIN_IQ1_M_R4: put_iq1_m(group, from, r, out); break;
    case PLAIN_IQ4_NL_R4: put_iq4_nl(from, r, out); break;
    case PLAIN_IQ4_XS_R8: put_iq4_xs(from, r, out); break;
    default: assert(false);
    }
}
