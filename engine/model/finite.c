/* See finite.h. */
#include "engine/model/finite.h"

#include "engine/layout/pack.h"

#include <string.h>

#define CHUNK 4096               /* elements looked at together; a multiple of every block */

bool values_finite(const float *x, int n)
{
    uint32_t bad = 0;

#pragma omp simd reduction(|:bad)
    for (int i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;      /* all bits of the exponent: a NaN or an infinity */
    }
    return !bad;
}

static bool tensor_finite(const struct tensor_view *t, bool (*stop)(void *ctx), void *ctx)
{
    const struct dtype_info *type = dtype_info(t->type);
    int64_t left = (int64_t)(t->bytes / (size_t)type->bytes) * type->block;
    const uint8_t *at = t->data;
    float values[CHUNK];

    if (!row_readable(t->type))
        return true;
    while (left && !stop(ctx)) {
        int n = left < CHUNK ? (int)left : CHUNK;

        row_to_f32(t->type, at, n, values);
        if (!values_finite(values, n))
            return false;
        at += dtype_row_bytes(t->type, n);
        left -= n;
    }
    return true;
}

const char *model_find_broken(const struct model *m, bool (*stop)(void *ctx), void *ctx)
{
    for (size_t i = 0; i < weight_file_count(m->file) && !stop(ctx); i++)
        if (!tensor_finite(weight_file_at(m->file, i), stop, ctx))
            return weight_file_at(m->file, i)->name;
    return NULL;
}
