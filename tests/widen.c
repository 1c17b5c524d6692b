/* See widen.h. */
#include "tests/widen.h"

#include "engine/base/mem.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "engine/layout/pack.h"

/* Rows of a tensor as F32. */
static int widen_tensor(struct gguf_writer *w, const struct tensor_view *t, struct error *e)
{
    int64_t cols = t->dims[t->n_dims - 1];
    size_t row = dtype_row_bytes(t->type, (int)cols);
    float *x = mem_alloc((size_t)cols, sizeof *x);
    int rc = x ? 0 : error_set(e, ERR_MEMORY, "no memory for a row");

    for (size_t at = 0; rc == 0 && at < t->bytes; at += row) {
        row_to_f32(t->type, (const uint8_t *)t->data + at, cols, x);
        rc = gguf_write_data(w, x, (size_t)cols * sizeof *x, e);
    }
    mem_free(x);
    return rc;
}

int widen_gguf(const char *model, const char *copy, struct error *e)
{
    struct weight_file *f = NULL;
    struct gguf_writer *w = NULL;
    const void *entry;
    const char *key;
    size_t key_bytes, bytes;
    int rc = weight_file_open(&f, model, false, e);

    if (rc == 0 && (rc = gguf_write_open(&w, copy, e)) == 0) {
        for (size_t i = 0; weight_file_entry(f, i, &key, &key_bytes, &entry, &bytes); i++)
            gguf_put_raw(w, entry, bytes);
        for (size_t i = 0; i < weight_file_count(f); i++) {
            const struct tensor_view *t = weight_file_at(f, i);

            gguf_write_tensor(w, t->name, DTYPE_F32, t->n_dims, t->dims);
        }
        rc = gguf_write_begin(w, e);
        for (size_t i = 0; rc == 0 && i < weight_file_count(f); i++)
            rc = widen_tensor(w, weight_file_at(f, i), e);
        if (rc == 0)
            rc = gguf_write_finish(w, e);
        else
            gguf_write_abort(w);
    }
    weight_file_close(f);
    return rc;
}
