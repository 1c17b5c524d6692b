/* Scalar dot products of the quantised formats: the reference, written from numerics.h and the
 * layout alone. */
#include "engine/device/cpu/kernels/formats.h"
#include "engine/file/blocks.h"

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
    int byte = payload[4 * (i % (4 * f->bits) / 4 * width + r) + i % 4], bit = 4 * r + i % 4,
        code = f->bits == 8 ? byte
               : i < 16     ? byte & 15
                            : byte >> 4;

    if (f->high == 1)
        code |= (block[i / 4 * width / 2 + bit / 8] >> bit % 8 & 1) << 4;
    if (f->high == 2)
        code |= (block[4 * (i / 16 * width + r) + i % 4] >> (2 * (i / 4 % 4)) & 3) << 4;
    return blocks_value(type, (uint8_t)code);
}

/* 6-bit factors of block j: as in the file, the word's bytes being spread over the rows. */
static void factors(const uint8_t *head, int width, int r, int j, int *scale, int *min)
{
    uint8_t s[12];

    for (int k = 0; k < 3; k++)
        memcpy(s + 4 * k, head + 4 * width + 4 * (k * width + r), 4);
    *scale = j < 4 ? s[j] & 63 : (s[4 + j] & 15) | (s[j - 4] >> 6) << 4;
    *min = j < 4 ? s[4 + j] & 63 : s[4 + j] >> 4 | (s[j] >> 6) << 4;
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
    if (f->factors) {
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

#define FORMAT(id, name, ...)                                                               \
    void dot_##name##_scalar(const void *weights, int groups, int width, int cols,          \
                             const struct act_block *panel, int nt, float *out,             \
                             ptrdiff_t out_stride)                                          \
    {                                                                                       \
        const uint8_t *group = weights;                                                     \
                                                                                            \
        for (int g = 0; g < groups;                                                         \
             g++, group += dtype_row_bytes(DTYPE_##id, cols) * (size_t)width, out += width) \
            dot(DTYPE_##id, group, width, cols, panel, nt, out, out_stride);                \
    }
#include "engine/file/formats.def"
