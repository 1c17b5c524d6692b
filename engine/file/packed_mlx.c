/* See packed_mlx.h. */
#include "engine/file/packed_mlx.h"

#include <stdio.h>
#include <string.h>

/* The settings of the matrix's module: its own, or those of all. */
static int read_settings(const struct showing *s, const struct packed *p, struct packing *out)
{
    const struct tensor_view *t = &p->codes;
    size_t n = strlen(t->name) - strlen(s->scheme->codes);
    char name[FILE_NAME_MAX + 1];
    const json_t *own;

    *out = *s->packing;
    snprintf(name, sizeof name, "%.*s", (int)n, t->name);
    own = json_object_get(s->packing->modules, name);
    if (json_is_object(own))
        packing_read_mlx(out, own);
    if (out->refused[0])
        return error_set(s->e, ERR_MODEL, "%s: tensor %s is packed by %s, which is not read: %s",
                         s->f->path, t->name, out->method, out->refused);
    return 0;
}

/* Whether each of them is an F16 number; most exponents tell. */
static bool halves_hold(const struct tensor_view *t)
{
    int64_t n = packed_lines(t) * t->dims[t->n_dims - 1];

    for (int64_t i = 0; t->type != DTYPE_F16 && i < n; i++) {
        float x = packed_float(t, i);
        uint32_t exponent = num_bits(x) >> 23 & 255;

        if (t->type == DTYPE_BF16 && exponent >= 113 && exponent <= 142)
            continue;
        if (num_from_f16(num_to_f16(x)) != x)
            return false;
    }
    return true;
}

/* As many lines of `each` elements. */
static bool fits(const struct tensor_view *t, const struct packed *p, int64_t each)
{
    return t->n_dims == p->codes.n_dims && packed_lines(t) == p->rows &&
           t->dims[t->n_dims - 1] == each;
}

int packed_mlx_show(const struct showing *s, struct packed *p)
{
    const struct tensor_view *t = &p->codes;
    struct packing settings;
    int rc = read_settings(s, p, &settings);

    if (rc)
        return rc;
    if (t->n_dims != 2 && t->n_dims != 3)
        return packed_wrong_shape(s, t, "words of codes in two or three dimensions are needed");
    if ((rc = packed_take_part(s, t, s->scheme->scales[0], &p->scales)))
        return rc;
    p->bits = settings.bits;
    p->per = 32 / p->bits;
    p->group = settings.group;
    p->rows = packed_lines(t);
    p->cols = t->dims[t->n_dims - 1] * p->per;
    if (p->cols % p->group || !fits(&p->scales, p, p->cols / p->group))
        return packed_wrong_shape(s, &p->scales,
                                  "a scale for each group of the configuration is needed");
    if (!settings.integers) {
        if (p->scales.type != DTYPE_U8)
            return packed_wrong_shape(s, &p->scales, "bytes are needed");
        p->kind = p->group == 32 ? PACKING_MXFP4_ROWS : PACKING_NVFP4;
        p->type = p->cols % 64 ? DTYPE_F32 : DTYPE_NVFP4;
        return 0;
    }
    if ((rc = packed_take_part(s, t, s->scheme->zeros, &p->zeros)))
        return rc;
    if (!packed_is_float(p->scales.type))
        return packed_wrong_shape(s, &p->scales, "floats are needed");
    if (p->zeros.type != p->scales.type || !fits(&p->zeros, p, p->cols / p->group))
        return packed_wrong_shape(s, &p->zeros, "a bias for each scale, of its type, is needed");
    p->type = p->bits == 4 && halves_hold(&p->scales) && halves_hold(&p->zeros) ? DTYPE_Q4_1
                                                                                : p->scales.type;
    return 0;
}

static float rounded(enum dtype type, float x)
{
    return type == DTYPE_BF16  ? num_from_bf16(num_to_bf16(x))
           : type == DTYPE_F16 ? num_from_f16(num_to_f16(x))
                               : x;
}

static float value_at(const struct packed *p, int64_t row, int64_t c)
{
    int64_t group = row * (p->cols / p->group) + c / p->group;
    uint32_t word = packed_word(&p->codes, row * (p->cols / p->per) + c / p->per),
             code = word >> p->bits * (int)(c % p->per) & ((1u << p->bits) - 1);
    float x = rounded(p->type, packed_float(&p->scales, group) * (float)code);

    return rounded(p->type, x + packed_float(&p->zeros, group));
}

void packed_mlx_values(const struct tensor_view *t, int64_t row, float *out)
{
    for (int64_t c = 0; c < t->packed->cols; c++)
        out[c] = value_at(t->packed, row, c);
}

/* Blocks of Q4_1. */
static void put_blocks(const struct packed *p, int64_t row, uint8_t *out)
{
    for (int64_t b = 0; b < p->cols / 32; b++, out += 20) {
        int64_t group = row * (p->cols / p->group) + b * 32 / p->group;
        uint16_t d = num_to_f16(packed_float(&p->scales, group)),
                 m = num_to_f16(packed_float(&p->zeros, group));

        memcpy(out, &d, 2);
        memcpy(out + 2, &m, 2);
        packed_halve((const uint8_t *)p->codes.data + (row * p->cols + b * 32) / 2, out + 4);
    }
}

void packed_mlx_row(const struct tensor_view *t, int64_t row, uint8_t *out)
{
    const struct packed *p = t->packed;

    if (t->type == DTYPE_Q4_1) {
        put_blocks(p, row, out);
        return;
    }
    for (int64_t c = 0; c < p->cols; c++) {
        float x = value_at(p, row, c);
        uint16_t h = p->type == DTYPE_BF16 ? num_to_bf16(x) : num_to_f16(x);

        if (p->type == DTYPE_F32)
            memcpy(out + 4 * c, &x, 4);
        else
            memcpy(out + 2 * c, &h, 2);
    }
}
