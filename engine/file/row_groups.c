/* See row_groups.h. */
#include "engine/file/row_groups.h"

#include "engine/file/format_traits.h"

#include <assert.h>
#include <string.h>

/* Where the parts of a superblock begin: in four rows' in the file, and in one row's of the format,
 * whose other bytes are zeroed first. -1: there is none. */
struct part {
    int file, plain;
};

static const struct layout {
    enum dtype type;
    struct part more;   /* a bit for each half, or eight blocks: whether its values are more */
    struct part high;   /* of factors: their bits above four, or their signs */
    struct part factor; /* four bits of each half, or a byte of each block */
    struct part above;  /* bits of codes above */
    struct part code;
} layouts[] = {
    {DTYPE_IQ2_K, {8, 2}, {-1, -1}, {16, 4}, {-1, -1}, {48, 12}},
    {DTYPE_IQ3_K, {8, 2}, {16, 4}, {24, 6}, {312, 78}, {56, 14}},
    {DTYPE_IQ4_K, {8, 2}, {16, 4}, {32, 8}, {-1, -1}, {64, 16}},
    {DTYPE_IQ5_K, {8, 2}, {16, 4}, {32, 8}, {576, 144}, {64, 16}},
    {DTYPE_IQ4_KS, {-1, -1}, {-1, -1}, {0, 4}, {-1, -1}, {32, 12}},
    {DTYPE_IQ5_KS, {-1, -1}, {-1, -1}, {0, 4}, {544, 140}, {32, 12}},
};

static const struct layout *layout_of(enum dtype type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

bool row_group_type(enum dtype type)
{
    return layout_of(type) != NULL;
}

static void put_bit(uint8_t *to, int bit, int value)
{
    to[bit / 8] |= (uint8_t)(value << bit % 8);
}

/* Factors of 16 columns. Number 2j + half of the row is number 8j + 4 * half + r of the group, half
 * of which are in the low nibbles. */
static void put_factors(const struct layout *l, const uint8_t *from, int r, uint8_t *out)
{
    for (int k = 0; k < 16; k++) {
        int at = k / 2 * 8 + k % 2 * 4 + r, j = k / 2, half = k % 2;

        out[l->factor.plain + j] |= (uint8_t)((from[l->factor.file + at % 32] >> at / 32 * 4 & 15)
                                              << 4 * half);
        put_bit(out + l->more.plain, k, from[l->more.file + r + 4 * half] >> j & 1);
        if (l->type == DTYPE_IQ3_K)
            put_bit(out + l->high.plain, k, from[l->high.file + at % 8] >> at / 8 & 1);
        else if (l->high.file >= 0)
            out[l->high.plain + j / 2] |=
                (uint8_t)((from[l->high.file + at % 16] >> at / 16 * 2 & 3)
                          << (j % 2 * 4 + half * 2));
    }
}

/* Column c of block j, one of four in group g of eight. */
static void put_code(const struct layout *l, const uint8_t *from, int r, int j, int c, uint8_t *out)
{
    const int g = c / 4, i = 4 * r + c % 4, bits = format_of[l->type].bits;
    const uint8_t *code = from + l->code.file;
    uint8_t *to = out + l->code.plain;

    if (bits < 4) {
        int x = code[32 * j + i + g / 4 * 16] >> g % 4 * 2 & 3;

        to[j / 4 * 32 + c] |= (uint8_t)(x << j % 4 * 2);
        if (l->above.file >= 0)
            put_bit(out + l->above.plain + c, j, from[l->above.file + 16 * j + i] >> g & 1);
        return;
    }
    code += 64 * j + i + 16 * (g / 4) + 32 * (g % 2);
    if (l->above.file < 0) {
        to[16 * j + c % 16] |= (uint8_t)((*code >> g / 2 % 2 * 4 & 15) << c / 16 * 4);
        return;
    }
    to[j / 2 * 32 + c] |= (uint8_t)((*code >> g / 2 % 2 * 4 & 15) << j % 2 * 4);
    put_bit(out + l->above.plain + c, j,
            from[l->above.file + 16 * j + i] >> (g / 2 + 4 * (g % 2)) & 1);
}

void row_group_block(enum dtype type, const uint8_t *group, int r, int64_t index, uint8_t *out)
{
    const struct layout *l = layout_of(type);
    const bool scaled = format_of[type].scale == SCALE_F32;
    const size_t bytes = (size_t)dtype_info(type)->bytes;
    const uint8_t *from = scaled ? group + 16 + (size_t)index * 4 * (bytes - 4)
                                 : group + (size_t)index * 4 * bytes;

    assert(l && r >= 0 && r < ROW_GROUP);
    memset(out, 0, bytes);
    if (scaled) {
        memcpy(out, group + 4 * r, 4);
        for (int j = 0; j < 8; j++)
            out[l->factor.plain + j] = from[l->factor.file + 4 * j + r];
    } else {
        memcpy(out, from + 2 * r, 2);
        put_factors(l, from, r, out);
    }
    for (int j = 0; j < 8; j++)
        for (int c = 0; c < 32; c++)
            put_code(l, from, r, j, c, out);
}
