/* Bit layouts of the formats whose blocks are scattered in a superblock of 256 columns:
 * ggml-common.h and dequantize_row_* of ggml-quants.c. Words are those of the file, four bytes
 * each; engine/device/cpu/kernels/unpack_words.inc reads the same words with one row per lane. Any
 * thread. */
#include "engine/file/blocks_words.h"

#include "engine/base/half.h"
#include "engine/file/format_traits.h"
#include "engine/file/grids.h"

#include <assert.h>
#include <string.h>

static uint32_t word_at(const uint8_t *words, int k)
{
    uint32_t w;

    memcpy(&w, words + 4 * k, 4);
    return w;
}

static void scale_block(struct block_fields *out, float factor)
{
    out->d[0] = out->d[1] = out->d[0] * factor;
}

/* Two bits of every byte of eight words: 2-bit codes of block j begin at word `first`. */
static void two_bits(const uint8_t *words, int first, int j, int zero, int8_t *value)
{
    const uint8_t *q = words + 4 * (first + j / 4 * 8);

    for (int i = 0; i < 32; i++)
        value[i] = (int8_t)((q[i] >> 2 * (j % 4) & 3) - zero);
}

static void q2_k(const uint8_t *words, int j, struct block_fields *out)
{
    for (int h = 0; h < 2; h++) {
        out->factor[h] = words[2 * j + h] & 15;
        out->least[h] = words[2 * j + h] >> 4;
    }
    two_bits(words, 4, j, 0, out->value);
}

static void q3_k(const uint8_t *words, int j, struct block_fields *out)
{
    const uint8_t *s = words + 96;

    two_bits(words, 8, j, 4, out->value);
    for (int i = 0; i < 32; i++)
        out->value[i] = (int8_t)(out->value[i] + ((words[i] >> j & 1) << 2));
    for (int h = 0; h < 2; h++) {
        int k = 2 * j + h, low = s[k % 8] >> (k / 8 * 4) & 15,
            high = s[8 + k % 4] >> (k / 4 * 2) & 3;

        out->factor[h] = (low | high << 4) - 32;
    }
}

/* Eight signs from seven bits: the number of minus signs is even. */
static unsigned even_signs(unsigned seven)
{
    return seven | (unsigned)(__builtin_popcount(seven) & 1) << 7;
}

/* n magnitudes of a grid's point with the signs from bit 0 on. */
static void put_point(const uint32_t *point, int n, unsigned signs, int8_t *value)
{
    for (int i = 0; i < n; i++) {
        int v = (int)(point[i / 4] >> 8 * (i % 4) & 255);

        value[i] = (int8_t)(signs >> i & 1 ? -v : v);
    }
}

static void iq3_xxs(const uint8_t *words, int j, struct block_fields *out)
{
    uint32_t aux = word_at(words, 16 + j);

    scale_block(out, (float)(2 * (aux >> 28) + 1) * 0.25f);
    for (int k = 0; k < 8; k++)
        put_point(&grid_iq3_xxs[words[8 * j + k]], 4,
                  even_signs(aux >> 7 * (k / 2) & 127) >> 4 * (k % 2), out->value + 4 * k);
}

static void iq3_s(const uint8_t *words, int j, struct block_fields *out)
{
    unsigned high = words[64 + j];

    scale_block(out, (float)(2 * (words[104 + j / 2] >> 4 * (j % 2) & 15) + 1));
    for (int k = 0; k < 8; k++)
        put_point(&grid_iq3_s[words[8 * j + k] | (high >> k & 1) << 8], 4,
                  (unsigned)words[72 + 4 * j + k / 2] >> 4 * (k % 2), out->value + 4 * k);
}

static void iq2_xxs(const uint8_t *words, int j, struct block_fields *out)
{
    uint32_t aux = word_at(words, 2 * j + 1);

    scale_block(out, (float)(2 * (aux >> 28) + 1) * 0.125f);
    for (int l = 0; l < 4; l++)
        put_point(&grid_iq2_xxs[2 * words[8 * j + l]], 8, even_signs(aux >> 7 * l & 127),
                  out->value + 8 * l);
}

/* IQ2_XS, IQ2_S: a factor of four bits for each half. */
static void nibble_factors(unsigned byte, struct block_fields *out)
{
    scale_block(out, 0.125f);
    out->factor[0] = (int)(2 * (byte & 15) + 1);
    out->factor[1] = (int)(2 * (byte >> 4) + 1);
}

static void iq2_xs(const uint8_t *words, int j, struct block_fields *out)
{
    nibble_factors(words[64 + j], out);
    for (int l = 0; l < 4; l++) {
        unsigned q = word_at(words, 2 * j + l / 2) >> 16 * (l % 2) & 0xffff;

        put_point(&grid_iq2_xs[2 * (q & 511)], 8, even_signs(q >> 9), out->value + 8 * l);
    }
}

static void iq2_s(const uint8_t *words, int j, struct block_fields *out)
{
    nibble_factors(words[72 + j], out);
    for (int l = 0; l < 4; l++) {
        unsigned high = words[64 + j] >> 2 * l & 3;

        put_point(&grid_iq2_s[2 * (words[4 * j + l] | high << 8)], 8, words[32 + 4 * j + l],
                  out->value + 8 * l);
    }
}

/* Eight values of -1, 0, 1, an eighth above or below, in eighths. */
static void put_ternary(unsigned point, bool below, int8_t *value)
{
    for (int i = 0; i < 8; i++) {
        int v = (int)(grid_iq1_s[2 * point + (unsigned)i / 4] >> 8 * (i % 4) & 255) - 16;

        value[i] = (int8_t)(below ? v - 1 : v + 1);
    }
}

static void iq1_s(const uint8_t *words, int j, struct block_fields *out)
{
    unsigned high = word_at(words, 8 + j / 2) >> 16 * (j % 2) & 0xffff;

    scale_block(out, (float)(2 * (high >> 12 & 7) + 1) * 0.125f);
    for (int l = 0; l < 4; l++)
        put_ternary(words[4 * j + l] | (high >> 3 * l & 7) << 8, high >> 15, out->value + 8 * l);
}

uint16_t blocks_spread(const uint8_t *scales)
{
    uint32_t a = word_at(scales, 0), b = word_at(scales, 1);

    return (uint16_t)((a >> 12 & 15) | (a >> 24 & 0xf0) | (b >> 4 & 0xf00) | (b >> 16 & 0xf000));
}

/* Four points of eight, whose eighths differ. */
static void put_ternaries(const uint8_t *words, int j, struct block_fields *out)
{
    unsigned high = word_at(words, 8 + j / 2) >> 16 * (j % 2) & 0xffff;

    for (int l = 0; l < 4; l++)
        put_ternary(words[4 * j + l] | (high >> 4 * l & 7) << 8, high >> 4 * l >> 3 & 1,
                    out->value + 8 * l);
}

static void iq1_m(const uint8_t *words, int j, struct block_fields *out)
{
    unsigned factors = word_at(words, 12 + j / 4) >> 16 * (j / 2 % 2) >> 6 * (j % 2);

    out->d[0] = out->d[1] = num_from_f16(blocks_spread(words + 48)) * 0.125f;
    out->factor[0] = (int)(2 * (factors & 7) + 1);
    out->factor[1] = (int)(2 * (factors >> 3 & 7) + 1);
    put_ternaries(words, j, out);
}

/* Rows of ik_llama.cpp's IQ1_M_R4: factors of four bits, a scale before the words. */
static void iq1_m_r(const uint8_t *words, int j, struct block_fields *out)
{
    scale_block(out, 0.125f);
    out->factor[0] = words[48 + j] & 15;
    out->factor[1] = words[48 + j] >> 4;
    put_ternaries(words, j, out);
}

/* Five digits of three a byte, which is their number in 243rds of 256, rounded up; the last words
 * have four. */
static void tq1_0(const uint8_t *words, int j, struct block_fields *out)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};

    for (int i = 0; i < 32; i++) {
        int n = j < 5 ? j : 2 * (j - 5) + i / 16, byte = j < 5 ? i : 32 + i % 16;

        if (n > 4) {
            n = i % 16 / 4;
            byte = 48 + i % 4;
        }
        out->value[i] = (int8_t)((3 * (uint8_t)(words[byte] * power[n]) >> 8) - 1);
    }
}

/* d: of the superblock */
static void nvfp4(const uint8_t *words, int j, float d, struct block_fields *out)
{
    for (int h = 0; h < 2; h++) {
        const uint8_t *q = words + 4 + 16 * j + 8 * h;

        out->d[h] = d * num_from_ue4m3_half(words[2 * j + h]);
        for (int i = 0; i < 16; i++)
            out->value[16 * h + i] = blocks_values[2][i < 8 ? q[i] & 15 : q[i - 8] >> 4];
    }
}

/* A bit a column: minus or plus one. */
static void q1_0(const uint8_t *words, int j, struct block_fields *out)
{
    for (int i = 0; i < 32; i++)
        out->value[i] = (int8_t)(2 * (words[4 * j + i / 8] >> i % 8 & 1) - 1);
}

/* Four columns a byte: -1, 0, 1, 2. */
static void q2_0(const uint8_t *words, int j, struct block_fields *out)
{
    for (int i = 0; i < 32; i++)
        out->value[i] = (int8_t)((words[8 * j + i / 4] >> 2 * (i % 4) & 3) - 1);
}

/* ---- ik_llama.cpp's formats of uneven steps (iqk_quantize.cpp, dequantize_row_iq2_k ..) ---- */

/* Bit n of the 16-bit field whose place is `before` the words. */
static int field_bit(const uint8_t *words, int before, int n)
{
    uint16_t field;

    memcpy(&field, words - before, 2);
    return field >> n & 1;
}

/* Both halves' values of codes: where a half's bit of the field after the scale is set, all of them
 * are `step` more. */
static void put_uneven(enum dtype type, const uint8_t *words, int j, int step, const uint8_t *code,
                       struct block_fields *out)
{
    const int before = format_head(type) - 2, row = format_of[type].lookup;

    for (int i = 0; i < 32; i++)
        out->value[i] = (int8_t)(blocks_values[row + code[i] / 16][code[i] % 16] +
                                 step * field_bit(words, before, 2 * j + i / 16));
}

static void scale_halves(struct block_fields *out, int first, int second)
{
    out->d[0] *= (float)first;
    out->d[1] *= (float)second;
}

static void iq2_k(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = words[8 + j / 4 * 32 + i] >> 2 * (j % 4) & 3;
    put_uneven(DTYPE_IQ2_K, words, j, 5, code, out);
    scale_halves(out, (words[j] & 15) - 8, (words[j] >> 4) - 8);
}

static void iq3_k(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];
    int sign[2];

    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((words[8 + j / 4 * 32 + i] >> 2 * (j % 4) & 3) |
                            (words[72 + i] >> j & 1) << 2);
    put_uneven(DTYPE_IQ3_K, words, j, 4, code, out);
    for (int h = 0; h < 2; h++)
        sign[h] = field_bit(words, 2, 2 * j + h) ? -1 : 1;
    scale_halves(out, sign[0] * (2 * (words[j] & 15) + 1), sign[1] * (2 * (words[j] >> 4) + 1));
}

/* IQ4_K, IQ5_K: two bits of each factor in four bytes, then four bits of each in eight. */
static void six_bit_halves(const uint8_t *words, int j, struct block_fields *out)
{
    int high = words[j / 2] >> 4 * (j % 2), low = words[4 + j];

    scale_halves(out, ((low & 15) | (high & 3) << 4) - 32,
                 ((low >> 4) | (high >> 2 & 3) << 4) - 32);
}

static void iq4_k(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = words[12 + 16 * j + i % 16] >> i / 16 * 4 & 15;
    put_uneven(DTYPE_IQ4_K, words, j, 4, code, out);
    six_bit_halves(words, j, out);
}

static void iq5_k(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((words[12 + j / 2 * 32 + i] >> j % 2 * 4 & 15) |
                            (words[140 + i] >> j & 1) << 4);
    put_uneven(DTYPE_IQ5_K, words, j, 2, code, out);
    six_bit_halves(words, j, out);
}

/* The values are those of the table with which ik_llama.cpp multiplies: its conversion to floats
 * takes the polynomial that the table rounds. */
static void iq6_k(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((words[16 + j / 2 * 32 + i] >> j % 2 * 4 & 15) |
                            (words[144 + j / 4 * 32 + i] >> 2 * (j % 4) & 3) << 4);
    put_uneven(DTYPE_IQ6_K, words, j, 1, code, out);
    scale_halves(out, (int8_t)words[2 * j], (int8_t)words[2 * j + 1]);
}

/* ---- The same with a factor and a step for a whole block ---- */

static void put_block(enum dtype type, int factor, int step, const uint8_t *code,
                      struct block_fields *out)
{
    const int row = format_of[type].lookup;

    scale_block(out, (float)factor);
    for (int i = 0; i < 32; i++)
        out->value[i] = (int8_t)(blocks_values[row + code[i] / 16][code[i] % 16] + step);
}

static void iq2_ks(const uint8_t *words, int j, struct block_fields *out)
{
    int low = words[j / 2] >> j % 2 * 4 & 15, high = field_bit(words, 2, 8 + j);
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = words[4 + j / 4 * 32 + i] >> 2 * (j % 4) & 3;
    put_block(DTYPE_IQ2_KS, (low | high << 4) - 16, 5 * field_bit(words, 2, j), code, out);
}

static void iq3_ks(const uint8_t *words, int j, struct block_fields *out)
{
    int low = words[j % 4] >> j / 4 * 4 & 15, high = field_bit(words, 2, j);
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((words[4 + j / 4 * 32 + i] >> 2 * (j % 4) & 3) |
                            (words[68 + i] >> j & 1) << 2);
    put_block(DTYPE_IQ3_KS, (low | high << 4) - 16, 4 * field_bit(words, 2, 8 + j), code, out);
}

static void iq4_ks(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = words[8 + 16 * j + i % 16] >> i / 16 * 4 & 15;
    put_block(DTYPE_IQ4_KS, (words[j] & 254) - 127, 4 * (words[j] & 1), code, out);
}

static void iq5_ks(const uint8_t *words, int j, struct block_fields *out)
{
    uint8_t code[32];

    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)((words[8 + j / 2 * 32 + i] >> j % 2 * 4 & 15) |
                            (words[136 + i] >> j & 1) << 4);
    put_block(DTYPE_IQ5_KS, (words[j] & 254) - 127, 2 * (words[j] & 1), code, out);
}

/* Pairs of values, numbered by five bits. */
static void iq2_kl(const uint8_t *words, int j, struct block_fields *out)
{
    const int row = format_of[DTYPE_IQ2_KL].lookup;
    int low = words[j % 4] >> j / 4 * 4 & 15, high = (words[j / 4 - 2] >> j % 4 * 2 & 3);

    scale_block(out, (float)((low | high << 4) - 32));
    for (int i = 0; i < 16; i++) {
        int code = (words[4 + j / 2 * 16 + i] >> j % 2 * 4 & 15), more = words[68 + i] >> j & 1;

        out->value[2 * i] = blocks_values[row + more][code];
        out->value[2 * i + 1] = blocks_values[row + 2 + more][code];
    }
}

/* ---- Trellis codes: values out of a number ---- */

/* n values: of each multiple of x by a power of the factor, the sum of the lowest six bits of its
 * bytes less 126. */
static void put_trellis(uint32_t x, int n, int8_t *out)
{
    for (int i = 0; i < n; i++) {
        uint32_t s;

        x *= BLOCKS_TRELLIS;
        s = x & 0x3f3f3f3fu;
        out[i] = (int8_t)((int)((s & 255) + (s >> 8 & 255) + (s >> 16 & 255) + (s >> 24)) - 126);
    }
}

static unsigned short_at(const uint8_t *p)
{
    return (unsigned)(p[0] | p[1] << 8);
}

static void iq1_kt(const uint8_t *words, int j, struct block_fields *out)
{
    scale_block(out, (float)blocks_values[1][words[j] & 15]);
    for (int g = 0; g < 4; g++) {
        unsigned x = words[8 + 4 * j + g] | (words[40 + j % 4 * 4 + g] >> j / 4 * 4 & 15u) << 8 |
                     (words[j] >> (4 + g) & 1u) << 12;

        put_trellis(x + 4096, 8, out->value + 8 * g);
    }
}

static void iq2_kt(const uint8_t *words, int j, struct block_fields *out)
{
    scale_block(out, (float)blocks_values[1][words[j % 4] >> j / 4 * 4 & 15]);
    for (int g = 0; g < 4; g++)
        put_trellis(short_at(words + 4 + 2 * (4 * j + g)) + 4096, 8, out->value + 8 * g);
}

/* Magnitudes, and a sign a column. */
static void iq3_kt(const uint8_t *words, int j, struct block_fields *out)
{
    scale_block(out, (float)(words[j % 4] >> j / 4 * 4 & 15));
    for (int g = 0; g < 4; g++)
        put_trellis(short_at(words + 4 + 2 * (4 * j + g)) + 4096, 8, out->value + 8 * g);
    for (int i = 0; i < 32; i++) {
        int x = out->value[i] < 0 ? -out->value[i] : out->value[i];

        out->value[i] = (int8_t)(words[68 + i] >> j & 1 ? -x : x);
    }
}

static void iq4_kt(const uint8_t *words, int j, struct block_fields *out)
{
    const uint8_t *head = words + 4 * j;
    uint32_t bits = head[1] | (uint32_t)head[2] << 8 | (uint32_t)head[3] << 16;

    scale_block(out, (float)((head[0] >> 1) - 64));
    for (int g = 0; g < 8; g++) {
        int k = 8 * j + g;
        unsigned x = words[32 + k] | (words[96 + k % 32] >> k / 32 * 4 & 15u) << 8 |
                     (bits >> 3 * g & 7) << 12;

        put_trellis(x + 4096 + (head[0] & 1) * 32768u, 4, out->value + 4 * g);
    }
}

static void q8_kv(const uint8_t *words, int j, struct block_fields *out)
{
    memcpy(out->value, words + 32 * j, 32);
}

void blocks_words(enum dtype type, const uint8_t *words, int j, struct block_fields *out)
{
    switch (type) {
    case DTYPE_Q2_K: q2_k(words, j, out); break;
    case DTYPE_Q3_K: q3_k(words, j, out); break;
    case DTYPE_IQ3_XXS: iq3_xxs(words, j, out); break;
    case DTYPE_IQ3_S: iq3_s(words, j, out); break;
    case DTYPE_IQ2_XXS: iq2_xxs(words, j, out); break;
    case DTYPE_IQ2_XS: iq2_xs(words, j, out); break;
    case DTYPE_IQ2_S: iq2_s(words, j, out); break;
    case DTYPE_IQ1_S: iq1_s(words, j, out); break;
    case DTYPE_IQ1_M: iq1_m(words, j, out); break;
    case DTYPE_IQ1_M_R: iq1_m_r(words, j, out); break;
    case DTYPE_TQ1_0: tq1_0(words, j, out); break;
    case DTYPE_TQ2_0: two_bits(words, 0, j, 1, out->value); break;
    case DTYPE_NVFP4: nvfp4(words, j, 1.0f, out); break;
    case DTYPE_NVFP4_S: nvfp4(words, j, out->d[0], out); break;
    case DTYPE_Q1_0: q1_0(words, j, out); break;
    case DTYPE_Q2_0: q2_0(words, j, out); break;
    case DTYPE_IQ2_K: iq2_k(words, j, out); break;
    case DTYPE_IQ3_K: iq3_k(words, j, out); break;
    case DTYPE_IQ4_K: iq4_k(words, j, out); break;
    case DTYPE_IQ5_K: iq5_k(words, j, out); break;
    case DTYPE_IQ6_K: iq6_k(words, j, out); break;
    case DTYPE_IQ2_KS: iq2_ks(words, j, out); break;
    case DTYPE_IQ3_KS: iq3_ks(words, j, out); break;
    case DTYPE_IQ4_KS: iq4_ks(words, j, out); break;
    case DTYPE_IQ5_KS: iq5_ks(words, j, out); break;
    case DTYPE_IQ2_KL: iq2_kl(words, j, out); break;
    case DTYPE_IQ1_KT: iq1_kt(words, j, out); break;
    case DTYPE_IQ2_KT: iq2_kt(words, j, out); break;
    case DTYPE_IQ3_KT: iq3_kt(words, j, out); break;
    case DTYPE_IQ4_KT: iq4_kt(words, j, out); break;
    case DTYPE_Q8_KV: q8_kv(words, j, out); break;
    default: assert(false);
    }
}
