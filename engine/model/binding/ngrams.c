/* Binding of n-grams (struct ngram_weights): their table stays in the mapped file, in one tensor or
 * in many; the numbers of their hashes are tensors in folders, metadata in GGUF files. Thread: that
 * of the binding. */
#include "engine/base/mem.h"
#include "engine/model/bind.h"

#include <stdio.h>
#include <string.h>

static const struct tensor_view *tensor_of(const struct binding *b, enum tensor_role role,
                                           int layer, int part)
{
    return family_tensor(b->family, b->model->file, role, layer, part, false);
}

static int missing(const struct binding *b, enum tensor_role role, int layer, struct error *e)
{
    char name[128];

    family_tensor_name(b->family, b->model->file, role, layer, 0, name, sizeof name);
    return error_set(e, ERR_MODEL, "%s: tensor %s is missing", weight_file_path(b->model->file),
                     name);
}

/* n numbers of a tensor of a folder, none below `least`. */
static int read_tensor(struct binding *b, enum tensor_role role, int layer, int n, int64_t least,
                       int64_t *to, struct error *e)
{
    const struct tensor_view *t = tensor_of(b, role, layer, 0);

    if (!t)
        return missing(b, role, layer, e);
    b->used[t->index] = 1;
    if (t->type != DTYPE_I64 || t->packed || t->n_dims != 1 || t->dims[0] != n)
        return error_set(e, ERR_MODEL, "%s: tensor %s must hold %d integers of 64 bits",
                         weight_file_path(b->model->file), t->name, n);
    memcpy(to, t->data, (size_t)n * sizeof *to);
    for (int i = 0; i < n; i++)
        if (to[i] < least)
            return error_set(e, ERR_MODEL, "%s: tensor %s holds %lld, less than %lld",
                             weight_file_path(b->model->file), t->name, (long long)to[i],
                             (long long)least);
    return 0;
}

/* The same of a GGUF file's list, which may be longer. */
static int read_list(const struct binding *b, const char *name, int n, int64_t least, int64_t *to,
                     struct error *e)
{
    char key[160];
    struct meta_value list, v = {0};

    snprintf(key, sizeof key, "%s.ple.%s", family_architecture(b->family, b->model->file), name);
    list = weight_file_meta(b->model->file, key);
    for (int i = 0; i < n; i++) {
        if (list.type == META_ARRAY && (size_t)i < list.len)
            v = meta_at(&list, (size_t)i);
        if (v.type != META_INT || v.i < least || list.len < (size_t)n)
            return error_set(e, ERR_MODEL, "%s: %s must be a list of %d integers from %lld on",
                             weight_file_path(b->model->file), key, n, (long long)least);
        to[i] = v.i;
    }
    return 0;
}

static int read_numbers(struct binding *b, struct ngram_weights *w, int layer, struct error *e)
{
    const struct ngram_shape *s = &hparams_layer(&b->model->hp, layer)->mixer.ngrams;
    bool gguf = weight_file_format(b->model->file) == WEIGHT_GGUF;
    int n = ngram_hashes(s), rc;

    if (gguf)
        return (rc = read_list(b, "layer_multipliers", s->size, INT64_MIN, w->multipliers, e)) ? rc
               : (rc = read_list(b, "head_vocab_sizes", n, 1, w->sizes, e))
                   ? rc
                   : read_list(b, "head_offsets", n, 0, w->offsets, e);
    return (rc = read_tensor(b, TENSOR_NGRAM_MULTIPLIERS, layer, s->size, INT64_MIN, w->multipliers,
                             e))
               ? rc
           : (rc = read_tensor(b, TENSOR_NGRAM_SIZES, layer, n, 1, w->sizes, e))
               ? rc
               : read_tensor(b, TENSOR_NGRAM_OFFSETS, layer, n, 0, w->offsets, e);
}

/* The tensors of the table, in order. */
static int list_parts(struct binding *b, struct ngram_weights *w, int layer, struct error *e)
{
    const struct tensor_view *t;
    int n = 0;

    while ((t = tensor_of(b, TENSOR_NGRAM_TABLE, layer, n)) &&
           !(n && t == tensor_of(b, TENSOR_NGRAM_TABLE, layer, 0)))
        n++;
    if (!n)
        return missing(b, TENSOR_NGRAM_TABLE, layer, e);
    if (!(w->parts = mem_alloc((size_t)n, sizeof *w->parts)))
        return error_set(e, ERR_MEMORY, "out of memory for the table of n-grams");
    for (int i = 0; i < n; i++)
        w->parts[i] = tensor_of(b, TENSOR_NGRAM_TABLE, layer, i);
    w->n_parts = n;
    return 0;
}

static int bind_parts(struct binding *b, struct ngram_weights *w, int layer, struct error *e)
{
    const struct ngram_shape *s = &hparams_layer(&b->model->hp, layer)->mixer.ngrams;
    int n = ngram_hashes(s), cols = s->width / n, rc = list_parts(b, w, layer, e);
    int64_t rows = 0;

    if (rc)
        return rc;
    w->part_rows = w->parts[0]->dims[0];
    for (int i = 0; i < w->n_parts; i++) {
        const struct tensor_view *t = w->parts[i];
        bool last = i + 1 == w->n_parts;

        if (t->n_dims != 2 || t->dims[1] != cols || t->dims[0] < 1 ||
            (last ? t->dims[0] > w->part_rows : t->dims[0] != w->part_rows))
            return error_set(e, ERR_MODEL,
                             "%s: tensor %s is no part of a table of n-grams: parts have %lld rows "
                             "(the last one no more) of %d values",
                             weight_file_path(b->model->file), t->name, (long long)w->part_rows,
                             cols);
        b->used[t->index] = 1;
        if ((rc = bind_rows(b, t, TENSOR_NGRAM_TABLE, cols, i ? 0 : n, e)))
            return rc;
        rows += t->dims[0];
    }
    b->model->n_params += rows * cols;
    for (int h = 0; h < n; h++)
        if (w->sizes[h] > rows || w->offsets[h] > rows - w->sizes[h])
            return error_set(e, ERR_MODEL,
                             "%s: hash %d of layer %d's n-grams is one of %lld rows from %lld on, "
                             "of a table of %lld; tensors of the table that are there: %d",
                             weight_file_path(b->model->file), h, layer, (long long)w->sizes[h],
                             (long long)w->offsets[h], (long long)rows, w->n_parts);
    return 0;
}

int bind_ngrams(struct binding *b, struct layer_weights *layer, int l, struct error *e)
{
    struct ngram_weights *w = &layer->ngrams;
    const struct ngram_shape *s = &hparams_layer(&b->model->hp, l)->mixer.ngrams;
    const struct {
        enum tensor_role role;
        const float **to;
    } norms[] = {{TENSOR_NGRAM_KEY_NORM, &w->key_norm},
                 {TENSOR_NGRAM_QUERY_NORM, &w->query_norm},
                 {TENSOR_NGRAM_CONV_NORM, &w->conv_norm}};
    int rc;

    if (!s->size)
        return 0;
    if ((rc = read_numbers(b, w, l, e)) || (rc = bind_parts(b, w, l, e)) ||
        (rc = bind_plain(b, &w->key, TENSOR_NGRAM_KEY, l, s->channels, s->width, e)) ||
        (rc = bind_plain(b, &w->value, TENSOR_NGRAM_VALUE, l, b->model->hp.hidden, s->width, e)))
        return rc;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        if ((rc = bind_values(b, norms[i].to, norms[i].role, l, s->channels, VECTOR_PLAIN, 0, e)))
            return rc;
        bind_one_more(b);
    }
    return bind_values(b, &w->conv, TENSOR_NGRAM_CONV, l, (int64_t)s->channels * s->taps,
                       VECTOR_PLAIN, s->taps, e);
}
