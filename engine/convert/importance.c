/* See importance.h. The file stays mapped; a tensor's sums are looked up by name. */
#include "engine/convert/importance.h"

#include "engine/base/mem.h"
#include "engine/file/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct importance {
    struct weight_file *file;
};

static const struct tensor_view *find(const struct importance *i, const char *tensor,
                                      const char *what)
{
    char name[160];

    snprintf(name, sizeof name, "%s.%s", tensor, what);
    return weight_file_find(i->file, name);
}

static float float_at(const struct tensor_view *t, size_t i)
{
    float v;

    memcpy(&v, (const char *)t->data + i * sizeof v, sizeof v);
    return v;
}

int importance_open(struct importance **out, const char *path, struct error *e)
{
    struct importance *i = mem_alloc(1, sizeof *i);
    bool sums = false;
    int rc;

    *out = NULL;
    if (!i)
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if ((rc = weight_file_open(&i->file, path, false, e)) < 0) {
        mem_free(i);
        return rc;
    }
    for (size_t k = 0; k < weight_file_count(i->file) && !sums; k++)
        sums = strstr(weight_file_at(i->file, k)->name, ".in_sum2") != NULL;
    if (!sums) {
        importance_close(i);
        return error_set(e, ERR_INPUT,
                         "%s: no importance matrix (a GGUF file of llama-imatrix has tensors "
                         "NAME.in_sum2)",
                         path);
    }
    *out = i;
    return 0;
}

void importance_close(struct importance *i)
{
    if (i)
        weight_file_close(i->file);
    mem_free(i);
}

int importance_check(const struct importance *i, const char *tensor, int count, int cols,
                     struct error *e)
{
    const struct tensor_view *sums = find(i, tensor, "in_sum2"), *rows = find(i, tensor, "counts");
    size_t n = (size_t)count * (size_t)cols;

    if (!sums)
        return 0;
    if (sums->type == DTYPE_F32 && sums->bytes == n * sizeof(float) && rows &&
        rows->type == DTYPE_F32 &&
        (rows->bytes == sizeof(float) || rows->bytes == (size_t)count * sizeof(float)))
        return 0;
    return error_set(e, ERR_INPUT,
                     "%s: %s: not of %d matrices with %d columns; it belongs to another model",
                     weight_file_path(i->file), sums->name, count, cols);
}

bool importance_row(const struct importance *i, const char *tensor, int index, int count, int cols,
                    float *row)
{
    const struct tensor_view *sums = find(i, tensor, "in_sum2"), *rows = find(i, tensor, "counts");
    double mean = 0.0;

    /* matrices of heads have the same input: llama-imatrix counts them once */
    if (!sums || index >= count ||
        !(float_at(rows, rows->bytes == sizeof(float) ? 0 : (size_t)index) > 0.0f))
        return false;
    for (int c = 0; c < cols; c++) {
        float v = float_at(sums, (size_t)index * (size_t)cols + (size_t)c);

        row[c] = isfinite(v) && v > 0.0f ? v : 0.0f;
        mean += (double)row[c];
    }
    mean /= cols;
    if (!(mean > 0.0) || !isfinite(mean))
        return false;
    for (int c = 0; c < cols; c++) /* unused columns still need a weight within their block */
        row[c] = (float)((double)row[c] / mean + 1e-6);
    return true;
}
