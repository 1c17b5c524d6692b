/* See row_scaled.h. */
#include "engine/file/row_scaled.h"

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
} types[] = {
    {144, DTYPE_IQ4_KS, 4, 136, 1},
    {145, DTYPE_IQ2_KS, 2, 70, 1},
    {146, DTYPE_IQ4_KS, 4, 128, 1},
    {152, DTYPE_IQ5_KS, 4, 168, 1},
    {156, DTYPE_IQ3_KS, 2, 102, 1},
    {337, DTYPE_IQ2_K, 0, 76, ROW_GROUP},
    {338, DTYPE_IQ3_K, 0, 110, ROW_GROUP},
    {339, DTYPE_IQ4_K, 0, 144, ROW_GROUP},
    {340, DTYPE_IQ5_K, 0, 176, ROW_GROUP},
    {344, DTYPE_IQ4_KS, 4, 136, ROW_GROUP},
    {352, DTYPE_IQ5_KS, 4, 168, ROW_GROUP},
    {157, DTYPE_IQ2_KL, 2, 86, 1},
    {158, DTYPE_IQ1_KT, 4, 56, 1},
    {153, DTYPE_IQ2_KT, 4, 68, 1},
    {154, DTYPE_IQ3_KT, 4, 100, 1},
    {155, DTYPE_IQ4_KT, 4, 128, 1},
    {151, DTYPE_Q8_KV, 8, 128, 1},
    {202, DTYPE_Q4_0, 0, 18, 8},
    {208, DTYPE_Q8_0, 0, 34, 8},
    {212, DTYPE_Q4_K, 0, 144, 4},
    {213, DTYPE_Q5_K, 0, 176, 4},
    {214, DTYPE_Q6_K, 0, 210, 4},
    {219, DTYPE_IQ1_S, 2, 48, 4},
    {220, DTYPE_IQ4_NL, 0, 18, 4},
    {223, DTYPE_IQ4_XS, 0, 136, 8},
    {353, DTYPE_MXFP4, 0, 17, 8},
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

size_t row_scaled_bytes(uint32_t gguf, int64_t cols)
{
    int i = find_type(gguf);

    return i < 0 ? 0
                 : (size_t)types[i].head +
                       (size_t)(cols / dtype_info(types[i].type)->block) * (size_t)types[i].each;
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
        MARK(18), MARK(19), MARK(20), MARK(21), MARK(22), MARK(23), MARK(24), MARK(25)};
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
    const int group = types[p->row_type].rows;
    const size_t head = (size_t)types[p->row_type].head, each = (size_t)types[p->row_type].each,
                 bytes = head + (size_t)(p->cols / dtype_info(t->type)->block) * each,
                 block = (size_t)dtype_info(t->type)->bytes, factor = block - each;
    const uint8_t *data = t->data, *scale = data + (size_t)row * bytes,
                  *from = scale + head + (size_t)first * each;

    assert(p->kind == PACKING_ROWS && row >= 0 && row < p->rows);
    for (int64_t b = 0; b < n; b++, from += each, out += block) {
        if (group > 1) {
            const uint8_t *rows = data + (size_t)(row / group * group) * bytes;

            if (row_group_type(t->type))
                row_group_block(t->type, rows, (int)(row % group), first + b, out);
            else
                row_group_plain(t->type, rows, group, (int)(row % group), first + b, out);
            continue;
        }
        if (is_kss(p)) {
            memcpy(out, scale, head);
            put_kss(from, out + head);
            continue;
        }
        memcpy(out, scale, factor);
        memcpy(out + factor, from, each);
    }
}

void row_scaled_row(const struct tensor_view *t, int64_t row, uint8_t *out)
{
    put_superblocks(t, row, 0, t->packed->cols / dtype_info(t->type)->block, out);
}

void row_scaled_values(const struct tensor_view *t, int64_t row, float *out)
{
    const int cols = dtype_info(t->type)->block;
    uint8_t block[256];

    assert((size_t)dtype_info(t->type)->bytes <= sizeof block);
    for (int64_t b = 0; b < t->packed->cols / cols; b++, out += cols) {
        put_superblocks(t, row, b, 1, block);
        blocks_to_f32(t->type, block, cols, out);
    }
}
