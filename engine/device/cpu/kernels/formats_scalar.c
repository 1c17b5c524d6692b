/* Scalar dot products of the quantised formats: the reference, written only from numerics.h and the
 * layout. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/file/blocks.h"
#include "engine/file/blocks_words.h"
#include "engine/layout/turned.h"

#include <math.h>
#include <string.h>

static uint16_t half_at(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, 2);
    return h;
}

/* The value of element i of row r, before scales; block: its 32 columns of the group. */
static int value_at(enum dtype type, const uint8_t *block, int width, int r, int i)
{
    const struct format_traits *f = &format_of[type];
    const uint8_t *payload = block + format_payload(type) * width;
    int byte = payload[4 * (i % (4 * f->bits) / 4 * width + r) + i % 4],
        code = f->bits == 8 ? byte ^ FORMAT_FLIP ^ 0x80
               : i < 16     ? byte & 15
                            : byte >> 4;

    if (f->high == 1)
        code |= (block[4 * r + i % 4] >> i / 4 & 1) << 4;
    if (f->high == 2)
        code |= (block[4 * (i / 16 * width + r) + i % 4] >> (2 * (i / 4 % 4)) & 3) << 4;
    return blocks_value(type, (uint8_t)code);
}

/* 6-bit factors of block j: as in the file, with the word's bytes spread over the rows. */
static void factors(const uint8_t *head, int width, int r, int j, int *scale, int *min)
{
    uint8_t s[12];

    for (int k = 0; k < 3; k++)
        memcpy(s + 4 * k, head + 4 * width + 4 * (k * width + r), 4);
    *scale = j < 4 ? s[j] & 63 : (s[4 + j] & 15) | (s[j - 4] >> 6) << 4;
    *min = j < 4 ? s[4 + j] & 63 : s[4 + j] >> 4 | (s[j] >> 6) << 4;
}

/* IQ4_XS: the factor of block j. */
static int signed_factor(const uint8_t *head, int width, int r, int j)
{
    int low = head[4 * (width + r) + j / 2] >> 4 * (j & 1) & 15;

    return (low | (half_at(head + 2 * (width + r)) >> 2 * j & 3) << 4) - 32;
}

static float add_block(enum dtype type, const uint8_t *group, int width, int b, int r,
                       const struct act_block *a, float acc)
{
    const struct format_traits *f = &format_of[type];
    int head = format_head(type), j = b % f->blocks, scale, min;
    const uint8_t *superblock = group +
                                (size_t)(b / f->blocks) * (size_t)(format_superblock(type) * width),
                  *block = superblock + (head + j * format_block_bytes(type)) * width;
    float d = f->scale == SCALE_E8M0 ? num_from_e8m0_half(superblock[r])
                                     : num_from_f16(half_at(superblock + 2 * r)),
          m = f->minimum ? num_from_f16(half_at(superblock + 2 * width + 2 * r)) : 0.0f;
    int32_t sum[2] = {0, 0}, s;

    for (int i = 0; i < NUM_BLOCK; i++)
        sum[i / 16] += value_at(type, block, width, r, i) * a->q[i];
    s = sum[0] + sum[1];
    if (f->factors == 2) {
        d = d * (float)signed_factor(superblock, width, r, j);
    } else if (f->factors) {
        factors(superblock, width, r, j, &scale, &min);
        d = d * (float)scale;
        m = m * (float)min;
    }
    if (f->halves) {
        const int8_t *halves = (const int8_t *)superblock + 2 * width + 4 * (j / 2 * width + r) +
                               j % 2 * 2;

        s = sum[0] * halves[0] + sum[1] * halves[1];
    }
    acc = fmaf((float)s, d * a->d, acc);
    return f->minimum ? fmaf((float)a->sum, (float)f->minimum * m * a->d, acc) : acc;
}

static void dot(enum dtype type, const void *group, int width, int cols,
                const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    int n = cols / NUM_BLOCK;

    for (int t = 0; t < nt; t++)
        for (int r = 0; r < width; r++) {
            float q[4];

            for (int i = 0; i < 4; i++) {
                q[i] = 0.0f;
                for (int b = (int)((int64_t)i * n / 4); b < (int)((int64_t)(i + 1) * n / 4); b++)
                    q[i] = add_block(type, group, width, b, r, panel + (ptrdiff_t)b * nt + t, q[i]);
            }
            out[t * out_stride + r] = (q[0] + q[1]) + (q[2] + q[3]);
        }
}

/* Block b of row r of a format that is packed unchanged. */
static void words_of_row(enum dtype type, const uint8_t *group, int width, int b, int r,
                         struct block_fields *out)
{
    const struct format_traits *f = &format_of[type];
    const uint8_t *superblock = group +
                                (size_t)(b / f->blocks) * (size_t)(format_superblock(type) * width);
    /* fields of 16 bits, as in the file, before the words */
    uint8_t row[8 + 256], *const words = row + 8, file[4 * TURNED_WORDS];
    uint32_t turned[TURNED_WORDS];

    out->factor[0] = out->factor[1] = out->least[0] = out->least[1] = 1;
    out->d[0] = SCALE_IS_F16(f->scale) ? num_from_f16(half_at(superblock + 2 * r)) : 0.0f;
    if (f->scale == SCALE_F32)
        out->d[0] = num_float((uint32_t)half_at(superblock + 2 * r) |
                              (uint32_t)half_at(superblock + 2 * (width + r)) << 16);
    out->d[1] = out->d[0];
    out->m = f->minimum ? (float)f->minimum * num_from_f16(half_at(superblock + 2 * (width + r)))
                        : 0.0f;
    for (int k = 0, fields = format_head(type) / 2; k < fields; k++)
        memcpy(words - 2 * (fields - k), superblock + 2 * (k * width + r), 2);
    for (int k = 0; k < f->words; k++)
        memcpy(words + 4 * k, superblock + format_head(type) * width + 4 * (k * width + r), 4);
    if (turned_type(type)) {
        memcpy(turned, words, sizeof turned);
        turned_to_file(type, turned, file);
    }
    blocks_words(type, turned_type(type) ? file : words, b % f->blocks, out);
}

/* Rule 2 for one block with a factor, or a scale, for each half. */
static float add_fields(enum dtype type, const struct block_fields *b, const struct act_block *a,
                        float acc)
{
    int32_t sum[2] = {0, 0}, least;

    for (int i = 0; i < NUM_BLOCK; i++)
        sum[i / 16] += b->value[i] * a->q[i];
    if (format_of[type].halves == 2) {
        acc = fmaf((float)sum[0], b->d[0] * a->d, acc);
        return fmaf((float)sum[1], b->d[1] * a->d, acc);
    }
    acc = fmaf((float)(sum[0] * b->factor[0] + sum[1] * b->factor[1]), b->d[0] * a->d, acc);
    if (!format_of[type].minimum)
        return acc;
    least = a->low * b->least[0] + (a->sum - a->low) * b->least[1];
    return fmaf((float)least, b->m * a->d, acc);
}

static void dot_words(enum dtype type, const void *group, int width, int cols,
                      const struct act_block *panel, int nt, float *out, ptrdiff_t out_stride)
{
    int n = cols / NUM_BLOCK;
    struct block_fields fields;

    for (int r = 0; r < width; r++) {
        float q[4][KERNEL_TILE] = {0};

        for (int i = 0; i < 4; i++)
            for (int b = (int)((int64_t)i * n / 4); b < (int)((int64_t)(i + 1) * n / 4); b++) {
                words_of_row(type, group, width, b, r, &fields);
                for (int t = 0; t < nt; t++)
                    q[i][t] = add_fields(type, &fields, panel + (ptrdiff_t)b * nt + t, q[i][t]);
            }
        for (int t = 0; t < nt; t++)
            out[t * out_stride + r] = (q[0][t] + q[1][t]) + (q[2][t] + q[3][t]);
    }
}

#define FORMAT(id, name, ...)                                                                      \
    void dot_##name##_scalar(const void *weights, int groups, int width, int cols,                 \
                             const struct act_block *panel, int nt, float *out,                    \
                             ptrdiff_t out_stride)                                                 \
    {                                                                                              \
        const uint8_t *group = weights;                                                            \
                                                                                                   \
        for (int g = 0; g < groups;                                                                \
             g++, group += dtype_row_bytes(DTYPE_##id, cols) * (size_t)width, out += width)        \
            (format_of[DTYPE_##id].words ? dot_words : dot)(DTYPE_##id, group, width, cols, panel, \
                                                            nt, out, out_stride);                  \
    }
#include "engine/file/formats.def"
