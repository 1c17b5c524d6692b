/* See packed_floats.h. */
#include "engine/file/packed_floats.h"

#include "engine/file/block_fields.h"
#include "engine/file/blocks.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define HALF 16       /* columns of an E4M3 factor */
#define SUPERBLOCK 64 /* columns of NVFP4_S */

static int64_t count(const struct tensor_view *t)
{
    return t->n_dims ? packed_lines(t) * t->dims[t->n_dims - 1] : 1;
}

/* One factor, or one for each matrix of the tensor. */
static bool has_factors(const struct tensor_view *t, const struct tensor_view *codes)
{
    return t->type == DTYPE_F32 &&
           (count(t) == 1 || (codes->n_dims == 3 && count(t) == codes->dims[0]));
}

/* ---- Opening ---- */

static int show_nvfp4(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes;
    int last = t->n_dims - 1, rc;

    if (t->type != DTYPE_U8 || (t->n_dims != 2 && t->n_dims != 3) || t->dims[last] % (HALF / 2))
        return packed_wrong_shape(s, t, "rows of 16 columns, two a byte, are needed, u8");
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)) ||
        (rc = packed_take_part(s, t, s->scheme->zeros, &p->zeros)))
        return rc;
    p->rows = packed_lines(t);
    p->cols = t->dims[last] * 2;
    p->matrix = t->dims[last - 1];
    if (p->scales.type != DTYPE_E4M3 || p->scales.n_dims != t->n_dims ||
        packed_lines(&p->scales) != p->rows || p->scales.dims[last] != p->cols / HALF)
        return packed_wrong_shape(s, &p->scales, "a scale for each 16 columns is needed, e4m3");
    if (!has_factors(&p->zeros, t))
        return packed_wrong_shape(s, &p->zeros, "one factor is needed, or one a matrix, f32");
    p->type = p->cols % SUPERBLOCK ? DTYPE_F32 : DTYPE_NVFP4_S;
    return 0;
}

/* Told by the types of its parts. */
static int show_modelopt(const struct showing *s, struct packed *p)
{
    const struct tensor_view *scales;

    if (p->codes.type == DTYPE_E4M3) {
        p->kind = PACKING_FP8;
        return 0;
    }
    scales = packed_find_part(s, &p->codes, s->scheme->scales[0]);
    if (scales && scales->type == DTYPE_U8) {
        p->kind = PACKING_MXFP4_ROWS;
        return 0;
    }
    p->kind = PACKING_MODELOPT;
    return show_nvfp4(s, p);
}

static int show_blocks(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes;
    int rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales);

    if (rc)
        return rc;
    if ((t->n_dims != 2 && t->n_dims != 3) || !has_factors(&p->scales, t))
        return packed_wrong_shape(s, &p->scales, "one factor is needed, or one a matrix, f32");
    p->rows = packed_lines(t);
    p->cols = t->dims[t->n_dims - 1];
    p->matrix = t->dims[t->n_dims - 2];
    p->type = DTYPE_NVFP4_S;
    return 0;
}

static int wrong_state(const struct showing *s, const struct tensor_view *t, const char *what)
{
    return error_set(s->e, ERR_MODEL, "%s: tensor %s: its quant_state has %s", s->f->path, t->name,
                     what);
}

/* What bitsandbytes says of a matrix. */
static int read_state(const struct showing *s, struct packed *p, const json_t *state)
{
    static const struct {
        const char *word;
        enum dtype type;
    } types[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    const json_t *shape = json_object_get(state, "shape"),
                 *nested = json_object_get(state, "nested_blocksize"),
                 *offset = json_object_get(state, "nested_offset"),
                 *type = json_object_get(state, "dtype"),
                 *nested_type = json_object_get(state, "nested_dtype");
    bool known = false;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is_string(type) && strcmp(json_string_value(type), types[i].word) == 0) {
            p->type = types[i].type;
            known = true;
        }
    if (!known)
        return wrong_state(s, &p->codes, "a dtype other than bfloat16, float16 and float32");
    p->group = json_integer_value(json_object_get(state, "blocksize"));
    p->rows = json_integer_value(json_array_get(shape, 0));
    p->cols = json_integer_value(json_array_get(shape, 1));
    if (p->group < 1 || json_array_size(shape) != 2 || p->rows < 1 || p->cols < 2 || p->cols % 2 ||
        p->rows > count(&p->codes) || p->cols > INT_MAX ||
        p->rows * (p->cols / 2) != count(&p->codes))
        return wrong_state(s, &p->codes, "a shape or blocksize that its bytes do not have");
    if (!nested)
        return 0;
    p->nested = json_integer_value(nested);
    p->added = (float)json_number_value(offset);
    if (p->nested < 1 || !json_is_number(offset) || !json_is_string(nested_type) ||
        strcmp(json_string_value(nested_type), "float32") != 0)
        return wrong_state(s, &p->codes, "no nested_blocksize, nested_offset and float32 factors");
    return 0;
}

static int take_floats(const struct showing *s, const struct packed *p, const char *part, int64_t n,
                       struct tensor_view *out)
{
    int rc = packed_take_part(s, &p->codes, part, out);

    if (rc)
        return rc;
    if (out->type != DTYPE_F32 || count(out) != n)
        return packed_wrong_shape(s, out, "as many f32 as its quant_state says are needed");
    return 0;
}

static int show_table(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes,
                             *state = packed_find_part(s, t,
                                                       ".weight.quant_state.bitsandbytes__nf4");
    json_t *json;
    int64_t n;
    int rc;

    if (!state)
        state = packed_find_part(s, t, ".weight.quant_state.bitsandbytes__fp4");
    if (!state) {
        struct tensor_view none;

        return packed_take_part(s, t, ".weight.quant_state.bitsandbytes__nf4", &none);
    }
    if (t->n_dims != 2 || state->type != DTYPE_U8 || state->bytes > 4096 ||
        !(json = json_loadb(state->data, state->bytes, 0, NULL)))
        return wrong_state(s, t, "no readable text");
    rc = read_state(s, p, json);
    json_decref(json);
    if (rc || (rc = take_floats(s, p, s->scheme->zeros, 16, &p->zeros)))
        return rc;
    n = (p->rows * p->cols + p->group - 1) / p->group;
    if (!p->nested)
        return take_floats(s, p, s->scheme->scales[0], n, &p->scales);
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)) ||
        (rc = take_floats(s, p, s->scheme->groups, (n + p->nested - 1) / p->nested, &p->groups)) ||
        (rc = take_floats(s, p, s->scheme->further, 256, &p->further)))
        return rc;
    if (p->scales.type != DTYPE_U8 || count(&p->scales) != n)
        return packed_wrong_shape(s, &p->scales, "a byte for each block is needed");
    return 0;
}

int packed_floats_show(const struct showing *s, struct packed *p)
{
    switch (p->kind) {
    case PACKING_MODELOPT: return show_modelopt(s, p);
    case PACKING_TABLE: return show_table(s, p);
    case PACKING_NVFP4_BLOCKS: return show_blocks(s, p);
    default: return show_nvfp4(s, p);
    }
}

/* ---- Rows ---- */

/* The factor of the row's matrix; 1: it has none. */
static float factor_of(const struct packed *p, const struct tensor_view *factors, int64_t row)
{
    return factors->data ? packed_float(factors, count(factors) == 1 ? 0 : row / p->matrix) : 1.0f;
}

static uint8_t nvfp4_scale(const struct packed *p, int64_t row, int64_t half)
{
    return ((const uint8_t *)p->scales.data)[row * (p->cols / HALF) + half];
}

/* 64 columns in the order of NVFP4; false: a scale is no number. */
static bool put_nvfp4(const struct packed *p, int64_t row, int64_t superblock, uint8_t *out)
{
    const uint8_t *codes = (const uint8_t *)p->codes.data +
                           (row * p->cols + superblock * SUPERBLOCK) / 2;
    bool number = true;

    for (int h = 0; h < SUPERBLOCK / HALF; h++, codes += HALF / 2) {
        uint8_t scale = nvfp4_scale(p, row, superblock * (SUPERBLOCK / HALF) + h),
                minus = scale & 0x80 ? 0x88 : 0, *to = out + SUPERBLOCK / HALF + HALF / 2 * h;

        number = number && (scale & 0x7f) != 0x7f;
        out[h] = scale & 0x7f;
        for (int i = 0; i < HALF / 2; i++)
            to[i] = (uint8_t)((codes[i / 2] >> i % 2 * 4 & 15) |
                              (codes[HALF / 4 + i / 2] >> i % 2 * 4 & 15) << 4) ^
                    minus;
    }
    return number;
}

static void nvfp4_values(const struct packed *p, int64_t row, float *out)
{
    const uint8_t *codes = (const uint8_t *)p->codes.data + row * p->cols / 2;
    float factor = factor_of(p, &p->zeros, row);

    for (int64_t c = 0; c < p->cols; c += 2) {
        uint8_t byte = nvfp4_scale(p, row, c / HALF);
        float scale = (byte & 0x7f) == 0x7f ? num_float(0x7fc00000u)
                                            : num_from_e4m3_half(byte) * 256.0f;

        scale = p->kind == PACKING_NVFP4 && p->zeros.data ? scale / factor : scale * factor;
        out[c] = 0.5f * (float)blocks_values[2][codes[c / 2] & 15] * scale;
        out[c + 1] = 0.5f * (float)blocks_values[2][codes[c / 2] >> 4] * scale;
    }
}

static void nvfp4_row(const struct tensor_view *t, int64_t row, uint8_t *out)
{
    const struct packed *p = t->packed;
    float factor = factor_of(p, &p->zeros, row);
    const size_t head = t->type == DTYPE_NVFP4_S ? sizeof factor : 0;

    if (p->kind == PACKING_NVFP4 && head)
        factor = 1.0f / factor;
    for (int64_t b = 0; b < p->cols / SUPERBLOCK; b++, out += dtype_info(t->type)->bytes) {
        float d = put_nvfp4(p, row, b, out + head) ? factor : num_float(0x7fc00000u);

        memcpy(out, &d, head);
    }
}

static void blocks_row(const struct tensor_view *t, int64_t row, uint8_t *out)
{
    const struct packed *p = t->packed;
    const size_t from_bytes = (size_t)dtype_info(DTYPE_NVFP4)->bytes;
    const uint8_t *from = (const uint8_t *)p->codes.data +
                          (size_t)row * dtype_row_bytes(DTYPE_NVFP4, p->cols);
    float factor = factor_of(p, &p->scales, row);

    for (int64_t b = 0; b < p->cols / SUPERBLOCK; b++, from += from_bytes) {
        memcpy(out, &factor, sizeof factor);
        memcpy(out + sizeof factor, from, from_bytes);
        out += sizeof factor + from_bytes;
    }
}

/* Weight i of a table's matrix, counted along its rows. */
static float table_value(const struct packed *p, int64_t i)
{
    const uint8_t *codes = p->codes.data, *bytes = p->scales.data;
    int64_t block = i / p->group;
    float factor;

    if (p->nested) {
        factor = packed_float(&p->further, bytes[block]) *
                 packed_float(&p->groups, block / p->nested);
        factor = factor + p->added;
    } else {
        factor = packed_float(&p->scales, block);
    }
    return packed_float(&p->zeros, codes[i / 2] >> (i % 2 ? 0 : 4) & 15) * factor;
}

static void table_row(const struct packed *p, int64_t row, uint8_t *out)
{
    for (int64_t c = 0; c < p->cols; c++) {
        float x = table_value(p, row * p->cols + c);
        uint16_t h = p->type == DTYPE_BF16 ? num_to_bf16(x) : num_to_f16(x);

        if (p->type == DTYPE_F32)
            memcpy(out + 4 * c, &x, 4);
        else
            memcpy(out + 2 * c, &h, 2);
    }
}

static void table_values(const struct packed *p, int64_t row, float *out)
{
    for (int64_t c = 0; c < p->cols; c++) {
        float x = table_value(p, row * p->cols + c);

        out[c] = p->type == DTYPE_BF16  ? num_from_bf16(num_to_bf16(x))
                 : p->type == DTYPE_F16 ? num_from_f16(num_to_f16(x))
                                        : x;
    }
}

void packed_floats_row(const struct tensor_view *t, int64_t row, uint8_t *out)
{
    switch (t->packed->kind) {
    case PACKING_TABLE: table_row(t->packed, row, out); break;
    case PACKING_NVFP4_BLOCKS: blocks_row(t, row, out); break;
    default: nvfp4_row(t, row, out); break;
    }
}

void packed_floats_values(const struct tensor_view *t, int64_t row, float *out)
{
    const struct packed *p = t->packed;
    uint8_t block[40];

    switch (p->kind) {
    case PACKING_TABLE: table_values(p, row, out); break;
    case PACKING_NVFP4_BLOCKS: {
        float factor = factor_of(p, &p->scales, row);
        const uint8_t *from = (const uint8_t *)p->codes.data +
                              (size_t)row * dtype_row_bytes(DTYPE_NVFP4, p->cols);

        memcpy(block, &factor, sizeof factor);
        for (int64_t b = 0; b < p->cols / SUPERBLOCK; b++, from += 36) {
            memcpy(block + sizeof factor, from, 36);
            blocks_to_f32(DTYPE_NVFP4_S, block, SUPERBLOCK, out + b * SUPERBLOCK);
        }
        break;
    }
    default: nvfp4_values(p, row, out); break;
    }
}
