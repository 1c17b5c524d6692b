/* See row_scaled.h. */
#include "engine/file/row_scaled.h"

#include "engine/base/half.h"
#include "engine/base/mem.h"
#include "engine/file/blocks.h"
#include "engine/file/reader.h"
#include "engine/file/row_groups.h"

#include <assert.h>
#include <string.h>

static const struct {
    uint32_t gguf;
    enum dtype type;
    int head, each; /* bytes before a row's superblocks, with its scale first; of a superblock */
    int rows;       /* of a group; 1: there are none */
    int cols;       /* of the file's superblock; 0: the type's */
} types[] = {
    {144, DTYPE_IQ4_KS, 4, 136, 1, 0},
    {145, DTYPE_IQ2_KS, 2, 70, 1, 0},
    {146, DTYPE_IQ4_KS, 4, 128, 1, 0},
    {152, DTYPE_IQ5_KS, 4, 168, 1, 0},
    {156, DTYPE_IQ3_KS, 2, 102, 1, 0},
    {337, DTYPE_IQ2_K, 0, 76, ROW_GROUP, 0},
    {338, DTYPE_IQ3_K, 0, 110, ROW_GROUP, 0},
    {339, DTYPE_IQ4_K, 0, 144, ROW_GROUP, 0},
    {340, DTYPE_IQ5_K, 0, 176, ROW_GROUP, 0},
    {344, DTYPE_IQ4_KS, 4, 136, ROW_GROUP, 0},
    {352, DTYPE_IQ5_KS, 4, 168, ROW_GROUP, 0},
    {157, DTYPE_IQ2_KL, 2, 86, 1, 0},
    {158, DTYPE_IQ1_KT, 4, 56, 1, 0},
    {153, DTYPE_IQ2_KT, 4, 68, 1, 0},
    {154, DTYPE_IQ3_KT, 4, 100, 1, 0},
    {155, DTYPE_IQ4_KT, 4, 128, 1, 0},
    {151, DTYPE_Q8_KV, 8, 128, 1, 0},
    {PLAIN_Q4_0_R8, DTYPE_Q4_0, 0, 18, 8, 0},
    {PLAIN_Q8_0_R8, DTYPE_Q8_0, 0, 34, 8, 0},
    {PLAIN_Q4_K_R4, DTYPE_Q4_K, 0, 144, 4, 0},
    {PLAIN_Q5_K_R4, DTYPE_Q5_K, 0, 176, 4, 0},
    {PLAIN_Q6_K_R4, DTYPE_Q6_K, 0, 210, 4, 0},
    {PLAIN_IQ1_S_R4, DTYPE_IQ1_S, 2, 48, 4, 0},
    {PLAIN_IQ4_NL_R4, DTYPE_IQ4_NL, 0, 18, 4, 0},
    {PLAIN_IQ4_XS_R8, DTYPE_IQ4_XS, 0, 136, 8, 0},
    {PLAIN_MXFP4_R8, DTYPE_MXFP4, 0, 17, 8, 0},
    {PLAIN_Q6_0, DTYPE_Q8_0, 0, 26, 1, 0},
    {PLAIN_Q6_0_R4, DTYPE_Q8_0, 0, 26, 4, 0},
    {PLAIN_Q8_K_R8, DTYPE_Q8_0, 0, 258, 8, 256},
    {PLAIN_Q8_K_R16, DTYPE_Q8_0, 0, 258, 16, 256},
    {PLAIN_Q8_KV_R8, DTYPE_Q8_KV, 4, 128, 8, 0},
    {PLAIN_Q5_0_R4, DTYPE_Q5_0, 0, 22, 4, 0},
    {PLAIN_Q2_K_R4, DTYPE_Q2_K, 0, 84, 4, 0},
    {PLAIN_Q3_K_R4, DTYPE_Q3_K, 0, 110, 4, 0},
    {PLAIN_IQ2_XXS_R4, DTYPE_IQ2_XXS, 0, 66, 4, 0},
    {PLAIN_IQ2_XS_R4, DTYPE_IQ2_XS, 0, 74, 4, 0},
    {PLAIN_IQ2_S_R4, DTYPE_IQ2_S, 0, 82, 4, 0},
    {PLAIN_IQ3_XXS_R4, DTYPE_IQ3_XXS, 0, 98, 4, 0},
    {PLAIN_IQ3_S_R4, DTYPE_IQ3_S, 0, 110, 4, 0},
    {PLAIN_BF16_R16, DTYPE_BF16, 0, 4, 16, 2},
    {PLAIN_IQ1_M_R4, DTYPE_IQ1_M_R, 2, 56, 4, 0},
};
#define TYPES ((int)(sizeof types / sizeof *types))

/* The row of `types`; -1: none. */
static int find_type(uint32_t gguf)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].gguf == gguf)
            return i;
    return -1;
}

int row_scaled_type(uint32_t gguf)
{
    int i = find_type(gguf);

    return i < 0 ? -1 : (int)types[i].type;
}

/* Columns of a superblock in the file. */
static int file_cols(int i)
{
    return types[i].cols ? types[i].cols : dtype_info(types[i].type)->block;
}

size_t row_scaled_bytes(uint32_t gguf, int64_t cols)
{
    int i = find_type(gguf);

    return i < 0 ? 0
                 : (size_t)types[i].head + (size_t)(cols / file_cols(i)) * (size_t)types[i].each;
}

const struct packed *row_scaled_mark(uint32_t gguf)
{
#define MARK(i)                             \
    {                                       \
        .kind = PACKING_ROWS, .row_type = i \
    }
    static const struct packed marks[] = {
        MARK(0),  MARK(1),  MARK(2),  MARK(3),  MARK(4),  MARK(5),  MARK(6),  MARK(7),  MARK(8),
        MARK(9),  MARK(10), MARK(11), MARK(12), MARK(13), MARK(14), MARK(15), MARK(16), MARK(17),
        MARK(18), MARK(19), MARK(20), MARK(21), MARK(22), MARK(23), MARK(24), MARK(25), MARK(26),
        MARK(27), MARK(28), MARK(29), MARK(30), MARK(31), MARK(32), MARK(33), MARK(34), MARK(35),
        MARK(36), MARK(37), MARK(38), MARK(39), MARK(40)};
#undef MARK
    int i = find_type(gguf);

    _Static_assert(sizeof marks / sizeof *marks == sizeof types / sizeof *types, "a mark each");
    return i < 0 ? NULL : &marks[i];
}

int row_scaled_show(struct weight_file *f, struct error *e)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_tensors; i++)
        n += f->tensors[i].view.packed != NULL;
    if (!n)
        return 0;
    if (!(f->packed = mem_alloc(n, sizeof *f->packed)))
        return error_set(e, ERR_MEMORY, "%s: out of memory for the packed tensors", f->path);
    for (size_t i = 0; i < f->n_tensors; i++) {
        struct tensor_view *t = &f->tensors[i].view;
        struct packed *p = &f->packed[f->n_packed];

        if (!t->packed)
            continue;
        *p = (struct packed){
            .kind = PACKING_ROWS, .row_type = t->packed->row_type, .codes = *t, .rows = 1};
        p->cols = t->dims[t->n_dims - 1];
        for (int k = 0; k + 1 < t->n_dims; k++)
            p->rows *= t->dims[k];
        p->codes.name = NULL;
        p->codes.packed = NULL;
        t->packed = p;
        f->n_packed++;
        if (p->rows % types[p->row_type].rows)
            return error_set(e, ERR_MODEL, "%s: tensor %s lies in groups of %d rows, but has %lld",
                             f->path, t->name, types[p->row_type].rows, (long long)p->rows);
        if (p->cols % file_cols(p->row_type))
            return error_set(e, ERR_MODEL,
                             "%s: tensor %s has rows of %lld columns, no multiple of %d", f->path,
                             t->name, (long long)p->cols, file_cols(p->row_type));
    }
    return 0;
}

/* IQ4_KSS as IQ4_KS, without the scale. */
static void put_kss(const uint8_t *from, uint8_t *out)
{
    for (int j = 0; j < 8; j++) {
        unsigned factor = 0;

        for (int k = 0; k < 8; k++, from += 2) {
            unsigned x = (unsigned)(from[0] | from[1] << 8), code = x & 0xfffe;

            factor |= (x & 1) << k;
            code ^= code >> 1;
            out[8 + 16 * j + 2 * k] = (uint8_t)code;
            out[8 + 16 * j + 2 * k + 1] = (uint8_t)(code >> 8);
        }
        out[j] = (uint8_t)factor;
    }
}

static bool is_kss(const struct packed *p)
{
    return types[p->row_type].gguf == 146;
}

/* The superblocks of a row; n of them from `first` on. */
static void put_superblocks(const struct tensor_view *t, int64_t row, int64_t first, int64_t n,
                            uint8_t *out)
{
    const struct packed *p = t->packed;
    const int group = types[p->row_type].rows, cols = file_cols(p->row_type),
              parts = cols / dtype_info(t->type)->block;
    const size_t head = (size_t)types[p->row_type].head, each = (size_t)types[p->row_type].each,
                 bytes = head + (size_t)(p->cols / cols) * each,
                 block = (size_t)dtype_info(t->type)->bytes;
    const uint8_t *rows = (const uint8_t *)t->data + (size_t)(row / group * group) * bytes;

    assert(p->kind == PACKING_ROWS && row >= 0 && row < p->rows);
    for (int64_t b = first; b < first + n; b++, out += block) {
        const uint8_t *from = rows + (head + (size_t)(b / parts) * each) * (size_t)group;

        if (group > 1 && row_group_type(t->type)) {
            row_group_block(t->type, rows, (int)(row % group), b, out);
        } else if (group > 1 || types[p->row_type].gguf == PLAIN_Q6_0) {
            row_group_plain((enum row_group_plain)types[p->row_type].gguf, rows, from,
                            (int)(row % group), b % parts, out);
        } else if (is_kss(p)) {
            memcpy(out, rows, head);
            put_kss(from, out + head);
        } else {
            memcpy(out, rows, block - each);
            memcpy(out + block - each, from, each);
        }
    }
}

/* BF16: two columns of 16 rows side by side; where those of column c are. */
static const uint8_t *pair_of_halves(const struct tensor_view *t, int64_t row, int64_t c)
{
    return (const uint8_t *)t->data + row / 16 * 16 * t->packed->cols * 2 + c / 2 * 64 +
           row % 16 * 4;
}

void row_scaled_row(const struct tensor_view *t, int64_t row, uint8_t *out)
{
    if (t->type == DTYPE_BF16)
        for (int64_t c = 0; c < t->packed->cols; c += 2)
            memcpy(out + 2 * c, pair_of_halves(t, row, c), 4);
    else
        put_superblocks(t, row, 0, t->packed->cols / dtype_info(t->type)->block, out);
}

void row_scaled_values(const struct tensor_view *t, int64_t row, float *out)
{
    const int cols = dtype_info(t->type)->block;
    uint8_t block[256];

    for (int64_t c = 0; t->type == DTYPE_BF16 && c < t->packed->cols; c++) {
        const uint8_t *p = pair_of_halves(t, row, c) + c % 2 * 2;

        out[c] = num_from_bf16((uint16_t)(p[0] | p[1] << 8));
    }
    if (t->type == DTYPE_BF16)
        return;
    assert((size_t)dtype_info(t->type)->bytes <= sizeof block);
    for (int64_t b = 0; b < t->packed->cols / cols; b++, out += cols) {
        put_superblocks(t, row, b, 1, block);
        blocks_to_f32(t->type, block, cols, out);
    }
}
