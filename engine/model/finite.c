/* See finite.h. */
#include "engine/model/finite.h"

#include "engine/base/mem.h"
#include "engine/file/blocks.h"
#include "engine/file/packed.h"

#define CHUNK 4096 /* blocks checked between two calls of stop() */

bool values_finite(const float *x, int n)
{
    return blocks_finite(DTYPE_F32, x, (size_t)n * sizeof *x);
}

int tensor_broken(const struct weight_file *f, const char *tensor, struct error *e)
{
    return error_set(e, ERR_VALUE,
                     "%s: the tensor %s holds values that are no numbers (NaN or infinite): the "
                     "file is damaged; "
                     "download or convert it again",
                     weight_file_path(f), tensor);
}

static bool packed_finite(const struct tensor_view *t, bool (*stop)(void *ctx), void *ctx)
{
    float *row = mem_alloc((size_t)t->packed->cols, sizeof *row);
    bool good = true;

    for (int64_t r = 0; row && good && r < t->packed->rows && !stop(ctx); r++) {
        packed_values(t, r, row);
        good = blocks_finite(DTYPE_F32, row, (size_t)t->packed->cols * sizeof *row);
    }
    mem_free(row);
    return good;
}

static bool tensor_finite(const struct tensor_view *t, bool (*stop)(void *ctx), void *ctx)
{
    size_t most = CHUNK * (size_t)dtype_info(t->type)->bytes, n;

    if (t->packed)
        return packed_finite(t, stop, ctx);

    for (size_t at = 0; at < t->bytes && !stop(ctx); at += n) {
        n = t->bytes - at < most ? t->bytes - at : most;
        if (!blocks_finite(t->type, (const uint8_t *)t->data + at, n))
            return false;
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
