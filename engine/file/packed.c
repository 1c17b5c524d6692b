/* See packed.h. Every part's shape is checked when the file is opened, so that rows can be
 * assembled without further checks; only this file knows the bit layouts of packings. */
#include "engine/file/packed.h"
#include "engine/file/f8.h"

#include "engine/base/half.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/file/blocks.h"
#include "engine/file/packed_floats.h"
#include "engine/file/packed_mlx.h"
#include "engine/file/packed_show.h"
#include "engine/file/row_scaled.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct scheme schemes[] = {
    [PACKING_MXFP4] = {"_blocks", "", {"_scales", NULL}, NULL, NULL, NULL, false, {NULL}},
    [PACKING_MXFP4_ROWS] = {".weight_packed", ".weight", {".weight_scale"}, NULL, NULL, NULL, false,
                            {".input_global_scale", NULL}},
    [PACKING_GPTQ] = {".qweight", ".weight", {".scales"}, ".qzeros", ".g_idx", NULL, false, {NULL}},
    [PACKING_AWQ] = {".qweight", ".weight", {".scales"}, ".qzeros", NULL, NULL, false, {NULL}},
    [PACKING_WORDS] = {".weight_packed", ".weight", {".weight_scale"}, ".weight_zero_point",
                      ".weight_g_idx", ".weight_shape", false, {NULL}},
    [PACKING_FP8] = {"", "", {"_scale_inv", "_scale"}, NULL, NULL, NULL, true,
                     {".input_scale", ".activation_scale"}},
    [PACKING_FP8_FP4] = {".weight", ".weight", {".scale"}, NULL, NULL, NULL, false, {NULL}},
    [PACKING_NVFP4] = {".weight_packed", ".weight", {".weight_scale"}, ".weight_global_scale", NULL,
                       NULL, false, {".input_global_scale", NULL}},
    [PACKING_MODELOPT] = {".weight", ".weight", {".weight_scale"}, ".weight_scale_2", NULL, NULL,
                          false, {".input_scale", ".k_scale", ".v_scale"}},
    [PACKING_TABLE] = {".weight", ".weight", {".weight.absmax"}, ".weight.quant_map",
                       ".weight.nested_absmax", ".weight.nested_quant_map", false, {NULL}},
    [PACKING_MLX] = {".weight", ".weight", {".scales"}, ".biases", NULL, NULL, false, {NULL}},
    [PACKING_NVFP4_BLOCKS] = {".weight", ".weight", {".scale"}, NULL, NULL, NULL, false,
                              {".input_scale", NULL}},
};
/* clang-format on */

static const char *path_of(const struct showing *s, const struct tensor_view *t)
{
    return s->f->maps[s->f->tensors[t->index].map].path;
}

/* Whether the scheme's scales are beside it. */
static bool has_scale(const struct weight_file *f, const struct scheme *scheme,
                      const struct tensor_view *t)
{
    char name[FILE_NAME_MAX + 32];
    size_t n = path_stem(t->name, scheme->codes);

    if (!n)
        return false;
    snprintf(name, sizeof name, "%.*s%s", (int)n, t->name, scheme->scales[0]);
    return file_find(f, name) != NULL;
}

static bool is_codes(const struct showing *s, const struct tensor_view *t)
{
    switch (s->packing->kind) {
    case PACKING_FP8: return t->type == DTYPE_E4M3;
    case PACKING_MODELOPT:
        return (t->type == DTYPE_E4M3 || t->type == DTYPE_U8) && path_stem(t->name, ".weight");
    case PACKING_TABLE: return t->type == DTYPE_U8 && path_stem(t->name, ".weight");
    case PACKING_MLX: return t->type == DTYPE_I32 && path_stem(t->name, ".weight");
    case PACKING_NVFP4_BLOCKS: return t->type == DTYPE_NVFP4 && has_scale(s->f, s->scheme, t);
    case PACKING_FP8_FP4:
        return (t->type == DTYPE_E4M3 || t->type == DTYPE_U8) && path_stem(t->name, ".weight");
    default: return path_stem(t->name, s->scheme->codes);
    }
}

int packed_wrong_shape(const struct showing *s, const struct tensor_view *t, const char *wanted)
{
    char has[100] = "";

    for (int i = 0; i < t->n_dims; i++)
        snprintf(has + strlen(has), sizeof has - strlen(has), "%s%lld", i ? ", " : "",
                 (long long)t->dims[i]);
    return error_set(s->e, ERR_MODEL, "%s: tensor %s has the shape (%s) and type %s; %s",
                     path_of(s, t), t->name, has, dtype_info(t->type)->word, wanted);
}

/* The part with that suffix for these codes; NULL: none. */
const struct tensor_view *packed_find_part(const struct showing *s, const struct tensor_view *codes,
                                           const char *ending)
{
    int n = (int)(strlen(codes->name) - strlen(s->scheme->codes));
    const struct tensor_view *t;
    char name[FILE_NAME_MAX + 32];

    if (!ending)
        return NULL;
    snprintf(name, sizeof name, "%.*s%s", n, codes->name, ending);
    if ((t = file_find(s->f, name)))
        s->part[t->index] = 1;
    return t;
}

/* The same, but required. out->name is the file's until it closes the parts. */
int packed_take_part(const struct showing *s, const struct tensor_view *codes, const char *ending,
                     struct tensor_view *out)
{
    const struct tensor_view *t = packed_find_part(s, codes, ending);
    int n = (int)(strlen(codes->name) - strlen(s->scheme->codes));

    if (!t)
        return error_set(s->e, ERR_MODEL, "%s: tensor %.*s%s is missing beside %s",
                         path_of(s, codes), n, codes->name, ending, codes->name);
    *out = *t;
    return 0;
}

static int64_t group_of(const struct packed *p, int64_t column)
{
    return p->groups.data ? (int64_t)packed_word(&p->groups, column) : column / p->group;
}

static int64_t n_groups(const struct packed *p)
{
    return p->scales.dims[p->kind == PACKING_WORDS ? 1 : 0];
}

/* Adjacent scales in memory are those of a row in compressed-tensors, of a column in GPTQ and
 * AWQ. */
static float group_scale(const struct packed *p, int64_t row, int64_t group)
{
    return packed_float(&p->scales, p->kind == PACKING_WORDS ? row * n_groups(p) + group
                                                             : group * p->rows + row);
}

/* Bit position of row i of eight in AWQ's words. */
static int awq_shift(int64_t row)
{
    static const int shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

    return shift[row % 8];
}

/* Code i of a word. */
static int code_in(const struct packed *p, uint32_t w, int64_t i)
{
    return (int)(w >> p->bits * (int)(i % p->per) & ((1u << p->bits) - 1));
}

static int zero_point(const struct packed *p, int64_t row, int64_t group)
{
    uint32_t w;

    if (!p->zeros.data)
        return 1 << (p->bits - 1);
    w = packed_word(&p->zeros, p->kind == PACKING_WORDS
                                   ? row / p->per * n_groups(p) + group
                                   : group * (p->rows / p->per) + row / p->per);
    return (p->kind == PACKING_AWQ ? (int)(w >> awq_shift(row) & 15) : code_in(p, w, row)) +
           p->zero_more;
}

static int code_at(const struct packed *p, int64_t row, int64_t column)
{
    switch (p->kind) {
    case PACKING_GPTQ:
        return code_in(p, packed_word(&p->codes, column / p->per * p->rows + row), column);
    case PACKING_AWQ:
        return (int)(packed_word(&p->codes, column * (p->rows / 8) + row / 8) >> awq_shift(row) &
                     15);
    default:
        return code_in(p, packed_word(&p->codes, row * p->codes.dims[1] + column / p->per), column);
    }
}

/* ---- Opening ---- */

static const char *words_needed(const struct packed *p)
{
    return p->bits == 8 ? "words of four codes in two dimensions are needed, i32"
                        : "words of eight codes in two dimensions are needed, i32";
}

static int check_groups(const struct showing *s, struct packed *p)
{
    int64_t groups = n_groups(p), want = s->packing->group ? s->packing->group : p->cols;

    p->group = want;
    if ((p->cols + want - 1) / want == groups)
        return 0;
    if (!s->packing->varied || p->cols % groups)
        return packed_wrong_shape(s, &p->scales,
                                  "its groups are not those of the quantization_config");
    p->group = p->cols / groups;
    return 0;
}

static int check_group_index(const struct showing *s, struct packed *p)
{
    const struct tensor_view *g = &p->groups;

    if (g->type != DTYPE_I32 || g->n_dims != 1 || g->dims[0] != p->cols)
        return packed_wrong_shape(s, g, "a group for each column is needed, i32");
    for (int64_t c = 0; c < p->cols; c++)
        if (packed_word(g, c) >= (uint32_t)n_groups(p))
            return error_set(s->e, ERR_MODEL,
                             "%s: tensor %s puts column %lld into group %d; there are %lld",
                             path_of(s, g), g->name, (long long)c, (int)(int32_t)packed_word(g, c),
                             (long long)n_groups(p));
    return 0;
}

/* Whether each of them is half of the code range. */
static bool all_zero_points(const struct packed *p)
{
    uint32_t ones = p->bits == 8 ? 0x01010101u : 0x11111111u,
             word = ones * ((1u << (p->bits - 1)) - (uint32_t)p->zero_more);
    int64_t n = p->zeros.data ? p->zeros.dims[0] * p->zeros.dims[1] : 0;

    for (int64_t i = 0; i < n; i++)
        if (packed_word(&p->zeros, i) != word)
            return false;
    return true;
}

static int64_t column_of(const struct packed *p, int64_t c)
{
    return p->order ? p->order[c] : c;
}

/* Whether every 32 columns, in their order, belong to one group. */
static bool columns_hold(const struct packed *p)
{
    for (int64_t c = 0; c < p->cols; c++)
        if (group_of(p, column_of(p, c)) != group_of(p, column_of(p, c / 32 * 32)))
            return false;
    return true;
}

/* Sorts columns by group if they are scattered, stably within a group. */
static int order_columns(const struct showing *s, struct packed *p)
{
    int64_t groups = n_groups(p), *next;

    if (columns_hold(p) || p->cols > UINT16_MAX + 1)
        return 0;
    next = mem_alloc((size_t)groups + 1, sizeof *next);
    p->order = mem_alloc((size_t)p->cols, sizeof *p->order);
    if (!next || !p->order) {
        mem_free(next);
        return error_set(s->e, ERR_MEMORY, "%s: out of memory for an order of columns", s->f->path);
    }
    for (int64_t c = 0; c < p->cols; c++)
        next[group_of(p, c) + 1]++;
    for (int64_t g = 0; g < groups; g++)
        next[g + 1] += next[g];
    for (int64_t c = 0; c < p->cols; c++)
        p->order[next[group_of(p, c)]++] = (uint16_t)c;
    mem_free(next);
    return 0;
}

/* Whether blocks of 32 columns with an F16 scale can represent the same values. */
static bool blocks_hold(const struct packed *p)
{
    int64_t n = p->scales.dims[0] * p->scales.dims[1];

    if (p->cols % 32 || (p->groups.data ? !columns_hold(p) : p->group % 32 && p->group < p->cols))
        return false;
    for (int64_t i = 0; p->scales.type != DTYPE_F16 && i < n; i++) {
        float x = packed_float(&p->scales, i);

        if (num_from_f16(num_to_f16(x)) != x)
            return false;
    }
    return true;
}

static enum dtype integer_type(const struct packed *p)
{
    if (!blocks_hold(p))
        return DTYPE_F32;
    if (p->bits == 8)
        return all_zero_points(p) ? DTYPE_Q8_0 : DTYPE_F32;
    return all_zero_points(p) ? DTYPE_Q4_0 : DTYPE_Q5_0;
}

/* GPTQ (in / 8, out), AWQ (in, out / 8); 4 instead of 8 if codes have 8 bits. */
static int show_columns(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes, *g;
    bool awq = p->kind == PACKING_AWQ;
    int rc;

    if (t->type != DTYPE_I32 || t->n_dims != 2)
        return packed_wrong_shape(s, t, words_needed(p));
    p->cols = awq ? t->dims[0] : t->dims[0] * p->per;
    p->rows = awq ? t->dims[1] * 8 : t->dims[1];
    p->zero_more = !awq && !s->packing->zeros_whole;
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)) ||
        (rc = packed_take_part(s, t, s->scheme->zeros, &p->zeros)))
        return rc;
    if (p->rows % p->per)
        return packed_wrong_shape(s, t,
                                  p->bits == 8 ? "the rows of a matrix are no multiple of 4"
                                               : "the rows of a matrix are no multiple of 8");
    if (!packed_is_float(p->scales.type) || p->scales.n_dims != 2 || p->scales.dims[1] != p->rows)
        return packed_wrong_shape(s, &p->scales, "a float for each group and row is needed");
    if (p->zeros.type != DTYPE_I32 ||
        !packed_has_shape(&p->zeros, p->scales.dims[0], p->rows / p->per))
        return packed_wrong_shape(s, &p->zeros, "a zero point for each scale is needed, i32");
    if ((rc = check_groups(s, p)))
        return rc;
    if (s->packing->indexed && (rc = packed_take_part(s, t, s->scheme->groups, &p->groups)))
        return rc;
    if (!s->packing->indexed) {
        if (!(g = packed_find_part(s, t, s->scheme->groups)))
            return 0;
        p->groups = *g;
    }
    rc = check_group_index(s, p);
    return rc ? rc : order_columns(s, p);
}

/* Zero points (out / 8, groups) and a group for each column (in), if the configuration has them. */
static int show_word_parts(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes;
    int rc;

    if (s->packing->asymmetric) {
        if ((rc = packed_take_part(s, t, s->scheme->zeros, &p->zeros)))
            return rc;
        if (p->zeros.type != DTYPE_I32 ||
            !packed_has_shape(&p->zeros, (p->rows + p->per - 1) / p->per, n_groups(p)))
            return packed_wrong_shape(s, &p->zeros, "a zero point for each scale is needed, i32");
    }
    if (!s->packing->indexed)
        return 0;
    if ((rc = packed_take_part(s, t, s->scheme->groups, &p->groups)) ||
        (rc = check_group_index(s, p)))
        return rc;
    return order_columns(s, p);
}

/* compressed-tensors (out, in / 8), and the true shape. */
static int show_rows(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes, *shape = packed_find_part(s, t, s->scheme->further);
    int64_t said[2];
    int rc;

    if (t->type != DTYPE_I32 || t->n_dims != 2)
        return packed_wrong_shape(s, t, words_needed(p));
    p->rows = said[0] = t->dims[0];
    p->cols = said[1] = t->dims[1] * p->per;
    if (shape) {
        if ((shape->type != DTYPE_I64 && shape->type != DTYPE_I32) || shape->n_dims != 1 ||
            shape->dims[0] != 2)
            return packed_wrong_shape(s, shape, "two integers are needed");
        for (int i = 0; i < 2; i++)
            if (shape->type == DTYPE_I64)
                memcpy(&said[i], (const uint8_t *)shape->data + 8 * i, 8);
            else
                said[i] = (int32_t)packed_word(shape, i);
        p->cols = said[1];
    }
    if (said[0] != t->dims[0] || said[1] < 1 || said[1] > t->dims[1] * p->per ||
        (said[1] + p->per - 1) / p->per != t->dims[1])
        return packed_wrong_shape(s, t, "that is not what its weight_shape says");
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)))
        return rc;
    if (!packed_is_float(p->scales.type) || p->scales.n_dims != 2 || p->scales.dims[0] != p->rows)
        return packed_wrong_shape(s, &p->scales, "a float for each row and group is needed");
    rc = check_groups(s, p);
    return rc ? rc : show_word_parts(s, p);
}

/* (..., rows, blocks, 16) and a scale per block. */
static int show_mxfp4(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes;
    int n = t->n_dims, rc;

    if (t->type != DTYPE_U8 || n < 3 || t->dims[n - 1] != 16)
        return packed_wrong_shape(s, t, "blocks of 16 bytes are needed, u8");
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)))
        return rc;
    if (p->scales.type != DTYPE_U8 || p->scales.n_dims != n - 1 ||
        memcmp(p->scales.dims, t->dims, (size_t)(n - 1) * sizeof *t->dims) != 0)
        return packed_wrong_shape(s, &p->scales, "a scale for each block is needed, u8");
    p->cols = t->dims[n - 2] * 32;
    p->rows = 1;
    for (int i = 0; i < n - 2; i++)
        p->rows *= t->dims[i];
    return 0;
}

/* (rows, columns / 2), and a scale for 32 columns. */
static int show_mxfp4_rows(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes;
    int rc;

    if (t->type != DTYPE_U8 || t->n_dims != 2 || t->dims[1] % 16)
        return packed_wrong_shape(s, t, "rows of 32 columns, two a byte, are needed, u8");
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)))
        return rc;
    p->rows = t->dims[0];
    p->cols = t->dims[1] * 2;
    if (p->scales.type != DTYPE_U8 || !packed_has_shape(&p->scales, p->rows, p->cols / 32))
        return packed_wrong_shape(s, &p->scales, "a scale for each 32 columns is needed, u8");
    return 0;
}

/* A scale per row, per 128 x 128 elements, or for all; of each matrix, if there are several. A byte
 * is a power of two, OCP's E8M0. */
static int show_fp8(const struct showing *s, struct packed *p)
{
    const char *other = s->scheme->scales[1];
    const struct tensor_view *t = &p->codes, *scales;
    int64_t down, across;
    int front;

    if (t->n_dims != 2 && t->n_dims != 3)
        return packed_wrong_shape(s, t, "a matrix is needed, or several");
    if ((scales = packed_find_part(s, t, s->scheme->scales[0])))
        p->scales = *scales;
    else if (!other)
        return packed_take_part(s, t, s->scheme->scales[0], &p->scales);
    else if (packed_take_part(s, t, other, &p->scales) < 0)
        return error_set(s->e, ERR_MODEL, "%s: tensor %s%s (or %s%s) is missing beside %s",
                         path_of(s, t), t->name, s->scheme->scales[0], t->name, other, t->name);
    scales = &p->scales;
    p->matrix = t->dims[t->n_dims - 2];
    p->cols = t->dims[t->n_dims - 1];
    p->rows = (t->n_dims == 3 ? t->dims[0] : 1) * p->matrix;
    front = t->n_dims == 3 && scales->n_dims ? 1 : 0;
    if (!(packed_is_float(scales->type) || scales->type == DTYPE_U8) ||
        scales->n_dims > t->n_dims ||
        (t->n_dims == 3 && (!scales->n_dims || scales->dims[0] != t->dims[0])))
        return packed_wrong_shape(s, scales, "float scales of each matrix are needed");
    down = scales->n_dims > front ? scales->dims[front] : 1;
    across = scales->n_dims > front + 1 ? scales->dims[front + 1] : 1;
    p->tall = p->matrix;
    p->wide = p->cols;
    if (across == 1 && down == p->matrix)
        p->tall = 1;
    else if (across != 1 || down != 1)
        p->tall = p->wide = F8_BLOCK;
    if (down != (p->matrix + p->tall - 1) / p->tall || across != (p->cols + p->wide - 1) / p->wide)
        return packed_wrong_shape(
            s, scales, "a scale for each 128 x 128 elements, each row, or all is needed");
    return 0;
}

static enum dtype shown_type(const struct packed *p)
{
    switch (p->kind) {
    case PACKING_MXFP4:
    case PACKING_MXFP4_ROWS: return DTYPE_MXFP4;
    case PACKING_FP8: return DTYPE_F8;
    case PACKING_NVFP4:
    case PACKING_MODELOPT:
    case PACKING_TABLE:
    case PACKING_NVFP4_BLOCKS:
    case PACKING_MLX: return p->type;
    default: return integer_type(p);
    }
}

static int show_one(const struct showing *s, struct tensor_view *t, struct packed *p)
{
    size_t stem = strlen(t->name) - strlen(s->scheme->codes);
    int rc = 0;
    char *name;

    *p = (struct packed){.kind = s->packing->kind, .codes = *t, .bits = s->packing->bits};
    if (p->kind == PACKING_FP8_FP4)
        p->kind = t->type == DTYPE_U8 ? PACKING_MXFP4_ROWS : PACKING_FP8;
    p->per = p->bits ? 32 / p->bits : 0;
    switch (p->kind) {
    case PACKING_GPTQ:
    case PACKING_AWQ: rc = show_columns(s, p); break;
    case PACKING_WORDS: rc = show_rows(s, p); break;
    case PACKING_MXFP4: rc = show_mxfp4(s, p); break;
    case PACKING_MXFP4_ROWS: /* of ModelOpt, too */ break;
    case PACKING_NVFP4:
    case PACKING_MODELOPT:
    case PACKING_TABLE:
    case PACKING_NVFP4_BLOCKS: rc = packed_floats_show(s, p); break;
    case PACKING_MLX: rc = packed_mlx_show(s, p); break;
    default: break;
    }
    if (rc)
        return rc;
    if (p->kind == PACKING_MXFP4_ROWS && !p->cols)
        rc = show_mxfp4_rows(s, p);
    else if (p->kind == PACKING_FP8)
        rc = show_fp8(s, p);
    if (rc)
        return rc;
    if (!(name = mem_alloc(stem + strlen(s->scheme->becomes) + 1, 1)))
        return error_set(s->e, ERR_MEMORY, "%s: out of memory for a tensor name", s->f->path);
    memcpy(name, t->name, stem);
    memcpy(name + stem, s->scheme->becomes, strlen(s->scheme->becomes) + 1);
    mem_free((void *)(uintptr_t)t->name);
    t->name = name;
    t->packed = p;
    t->type = shown_type(p);
    if (t->type == DTYPE_F32) {
        mem_free(p->order);
        p->order = NULL;
    }
    if (p->kind == PACKING_MXFP4)
        t->n_dims--;
    else if (t->n_dims == 2)
        t->dims[0] = p->rows;
    t->dims[t->n_dims - 1] = p->cols;
    return 0;
}

/* A part without codes. FP8's "_scale" is also used for caches. */
static int check_orphan(const struct showing *s, const struct tensor_view *t)
{
    const char *const parts[] = {s->scheme->scales[0], s->scheme->scales[1], s->scheme->zeros,
                                 s->scheme->groups, s->scheme->further};

    if (s->part[t->index] || is_codes(s, t) || s->packing->kind == PACKING_NVFP4_BLOCKS ||
        (s->packing->kind == PACKING_FP8_FP4 && t->type != DTYPE_U8))
        return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (path_stem(t->name, parts[i]) && (i != 1 || path_stem(t->name, ".weight_scale")))
            return error_set(s->e, ERR_MODEL, "%s: tensor %.*s%s is missing beside %s%s",
                             path_of(s, t), (int)(strlen(t->name) - strlen(parts[i])), t->name,
                             s->scheme->codes, t->name,
                             s->scheme->by_type ? ", or not of the type F8_E4M3" : "");
    return 0;
}

/* Removes the parts; the remaining tensors are ordinary ones. */
static void drop_parts(const struct showing *s)
{
    struct weight_file *f = s->f;
    size_t n = 0;

    for (size_t i = 0; i < f->n_tensors; i++) {
        if (s->part[i]) {
            mem_free((void *)(uintptr_t)f->tensors[i].view.name);
            continue;
        }
        f->tensors[n] = f->tensors[i];
        f->tensors[n].view.index = (uint32_t)n;
        n++;
    }
    f->n_tensors = n;
    for (size_t i = 0; i < f->n_packed; i++)
        f->packed[i].codes.name = f->packed[i].scales.name = f->packed[i].zeros.name =
            f->packed[i].groups.name = f->packed[i].further.name = NULL;
}

/* FP8 with scales of DeepSeek V4's name. */
static bool is_fp8_fp4(const struct weight_file *f)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].view.type == DTYPE_E4M3 &&
            has_scale(f, &schemes[PACKING_FP8_FP4], &f->tensors[i].view))
            return true;
    return false;
}

int packed_show(struct weight_file *f, const struct packing *packing, struct error *e)
{
    struct packing p = *packing;
    struct showing s = {f, &p, NULL, mem_alloc(f->n_tensors, 1), e};
    size_t n = 0, k = 0;
    int rc = 0;

    if (p.kind == PACKING_FP8 && is_fp8_fp4(f))
        p.kind = PACKING_FP8_FP4;
    s.scheme = &schemes[p.kind];
    for (size_t i = 0; i < f->n_tensors; i++)
        n += is_codes(&s, &f->tensors[i].view);
    if (!s.part || !(f->packed = mem_alloc(n + 1, sizeof *f->packed))) {
        rc = error_set(e, ERR_MEMORY, "%s: out of memory for the packed tensors", f->path);
        goto out;
    }
    f->n_packed = n;
    for (size_t i = 0; i < f->n_tensors; i++)
        for (size_t u = 0; u < sizeof s.scheme->unused / sizeof *s.scheme->unused; u++)
            s.part[i] |= path_stem(f->tensors[i].view.name, s.scheme->unused[u]) > 0;
    for (size_t i = 0; i < f->n_tensors; i++)
        if (is_codes(&s, &f->tensors[i].view) &&
            (rc = show_one(&s, &f->tensors[i].view, &f->packed[k++])))
            goto out;
    for (size_t i = 0; i < f->n_tensors; i++)
        if (!f->tensors[i].view.packed && (rc = check_orphan(&s, &f->tensors[i].view)))
            goto out;
    drop_parts(&s);
out:
    mem_free(s.part);
    return rc;
}

void packed_release(struct weight_file *f)
{
    for (size_t i = 0; i < f->n_packed; i++)
        mem_free(f->packed[i].order);
    mem_free(f->packed);
}

/* ---- Rows ---- */

/* The codes of 32 columns of a row as pairs. */
static void pairs_of(const struct packed *p, int64_t row, int64_t block, uint8_t *out)
{
    const uint8_t *codes = p->codes.data;
    int64_t c = block * 32;

    if (p->kind == PACKING_AWQ || p->order) {
        for (int k = 0; k < 16; k++, c += 2)
            out[k] = (uint8_t)(code_at(p, row, column_of(p, c)) |
                               code_at(p, row, column_of(p, c + 1)) << 4);
        return;
    }
    switch (p->kind) {
    case PACKING_GPTQ:
        for (int k = 0; k < 4; k++)
            memcpy(out + 4 * k, codes + 4 * ((c / 8 + k) * p->rows + row), 4);
        break;
    default: memcpy(out, codes + 4 * (row * p->codes.dims[1] + c / 8), 16); break;
    }
}

/* A block of Q8_0. */
static void put_bytes(const struct packed *p, int64_t row, int64_t block, uint8_t *out)
{
    int64_t c = block * 32, group = group_of(p, column_of(p, c));
    uint16_t d = num_to_f16(group_scale(p, row, group));

    memcpy(out, &d, 2);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)(code_at(p, row, column_of(p, c + i)) - 128);
}

/* A block of Q4_0 or Q5_0. */
static void put_integers(const struct packed *p, enum dtype type, int64_t row, int64_t block,
                         uint8_t *out)
{
    int64_t group = group_of(p, column_of(p, block * 32));
    uint16_t d = num_to_f16(group_scale(p, row, group));
    int up = 16 - zero_point(p, row, group);
    uint8_t pairs[16], code[32];
    uint32_t high = 0;

    memcpy(out, &d, 2);
    pairs_of(p, row, block, pairs);
    if (type == DTYPE_Q4_0) {
        packed_halve(pairs, out + 2);
        return;
    }
    for (int i = 0; i < 16; i++) {
        code[2 * i] = (uint8_t)((pairs[i] & 15) + up);
        code[2 * i + 1] = (uint8_t)((pairs[i] >> 4) + up);
    }
    for (int i = 0; i < 32; i++)
        high |= (uint32_t)(code[i] >> 4) << i;
    memcpy(out + 2, &high, 4);
    for (int i = 0; i < 16; i++)
        out[6 + i] = (uint8_t)((code[i] & 15) | (code[16 + i] & 15) << 4);
}

static float fp8_scale(const struct packed *p, int64_t row, int64_t column)
{
    int64_t down = (p->matrix + p->tall - 1) / p->tall, across = (p->cols + p->wide - 1) / p->wide,
            at = (row / p->matrix * down + row % p->matrix / p->tall) * across + column / p->wide;

    if (p->scales.type == DTYPE_U8) {
        int exponent = ((const uint8_t *)p->scales.data)[at];

        return exponent == 255 ? NAN : ldexpf(1.0f, exponent - 127);
    }
    return packed_float(&p->scales, at);
}

static void put_fp8(const struct packed *p, int64_t row, uint8_t *out)
{
    const uint8_t *codes = (const uint8_t *)p->codes.data + row * p->cols;
    int64_t c = 0;

    for (int64_t block = 0; block < p->cols; block += F8_BLOCK) {
        float d = fp8_scale(p, row, block) * 256.0f;

        memcpy(out + block / F8_BLOCK * F8_BLOCK_BYTES, &d, sizeof d);
    }
    for (; c + F8_TURNED <= p->cols; c += F8_TURNED, codes += F8_TURNED) {
        uint8_t *to = out + f8_place(c, p->cols);

        for (int i = 0; i < F8_TURNED; i++)
            to[i] = codes[i % 4 * 16 + i / 4];
    }
    if (c < p->cols)
        memcpy(out + f8_place(c, p->cols), codes, (size_t)(p->cols - c));
}

static void put_mxfp4(const struct packed *p, int64_t row, int64_t block, uint8_t *out)
{
    int64_t at = row * (p->cols / 32) + block;

    *out = ((const uint8_t *)p->scales.data)[at];
    packed_halve((const uint8_t *)p->codes.data + 16 * at, out + 1);
}

static bool row_by_row(const struct packed *p)
{
    return p->kind == PACKING_ROWS || p->kind == PACKING_MLX || p->kind == PACKING_NVFP4 ||
           p->kind == PACKING_MODELOPT || p->kind == PACKING_TABLE ||
           p->kind == PACKING_NVFP4_BLOCKS;
}

void packed_rows(const struct tensor_view *t, int64_t first, int step, int n, void *out)
{
    const struct packed *p = t->packed;
    size_t row = dtype_row_bytes(t->type, p->cols), block = (size_t)dtype_info(t->type)->bytes;
    uint8_t *to = out;

    assert(n >= 0 && n <= PACKED_ROWS && first >= 0 && first + (int64_t)step * (n - 1) < p->rows);
    if (t->type == DTYPE_F32 || t->type == DTYPE_F8 || row_by_row(p)) {
        for (int r = 0; r < n; r++, first += step, to += row)
            if (p->kind == PACKING_ROWS)
                row_scaled_row(t, first, to);
            else if (p->kind == PACKING_MLX)
                packed_mlx_row(t, first, to);
            else if (row_by_row(p))
                packed_floats_row(t, first, to);
            else if (t->type == DTYPE_F8)
                put_fp8(p, first, to);
            else
                packed_values(t, first, (float *)(void *)to);
        return;
    }
    /* block by block: rows sharing a word, or a cache line, are read together */
    for (int64_t b = 0; b < p->cols / 32; b++, to += block)
        for (int r = 0; r < n; r++)
            if (t->type == DTYPE_MXFP4)
                put_mxfp4(p, first + (int64_t)r * step, b, to + (size_t)r * row);
            else if (t->type == DTYPE_Q8_0)
                put_bytes(p, first + (int64_t)r * step, b, to + (size_t)r * row);
            else
                put_integers(p, t->type, first + (int64_t)r * step, b, to + (size_t)r * row);
}

void packed_values(const struct tensor_view *t, int64_t row, float *out)
{
    const struct packed *p = t->packed;
    const uint8_t *codes = p->codes.data;
    uint8_t block[32];

    assert(row >= 0 && row < p->rows);
    switch (p->kind) {
    case PACKING_ROWS: row_scaled_values(t, row, out); return;
    case PACKING_MLX: packed_mlx_values(t, row, out); return;
    case PACKING_NVFP4:
    case PACKING_MODELOPT:
    case PACKING_TABLE:
    case PACKING_NVFP4_BLOCKS: packed_floats_values(t, row, out); return;
    case PACKING_MXFP4:
    case PACKING_MXFP4_ROWS:
        for (int64_t b = 0; b < p->cols / 32; b++) {
            put_mxfp4(p, row, b, block);
            blocks_to_f32(DTYPE_MXFP4, block, 32, out + b * 32);
        }
        return;
    case PACKING_FP8:
        for (int64_t c = 0; c < p->cols; c++)
            out[c] = num_from_e4m3_half(codes[row * p->cols + c]) * (fp8_scale(p, row, c) * 256.0f);
        return;
    default: break;
    }
    for (int64_t c = 0; c < p->cols; c++) {
        int64_t g = group_of(p, c);

        out[c] = group_scale(p, row, g) * (float)(code_at(p, row, c) - zero_point(p, row, g));
    }
}

void packed_span(const struct tensor_view *t, int64_t first, int64_t n, size_t *offset,
                 size_t *bytes)
{
    const struct packed *p = t->packed;
    size_t row = t->bytes / (size_t)p->rows;

    *offset = 0;
    *bytes = t->bytes;
    if (p->kind == PACKING_GPTQ || p->kind == PACKING_AWQ)
        return;
    *offset = (size_t)first * row;
    *bytes = (size_t)n * row;
}
