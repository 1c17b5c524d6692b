/* See merge_folder.h. A tensor's rows are read, merged and rounded to its type one after the other,
 * so that only one row is in memory besides the adapters. */
#include "engine/convert/merge_folder.h"

#include "engine/adapter/merge.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/companions.h"
#include "engine/layout/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME "model.safetensors"
#define TELL ((uint64_t)16 << 20) /* bytes between two progress calls */

struct merging {
    struct model *m;
    struct adapters *adapters;
    float strengths[LORA_ADAPTERS];
    const char *out;
    int type;            /* of all floats; -1: unchanged */
    char path[PATH_MAX]; /* of the temporary file */
    FILE *f;
    float *row; /* the widest */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    uint64_t done, told, total;
    struct merge_report *report;
};

static const char *type_word(enum dtype type)
{
    switch (type) {
    case DTYPE_F32: return "F32";
    case DTYPE_F16: return "F16";
    case DTYPE_BF16: return "BF16";
    case DTYPE_I32: return "I32";
    case DTYPE_I64: return "I64";
    default: return NULL;
    }
}

static bool is_float(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

static enum dtype type_of(const struct merging *g, const struct tensor_view *t)
{
    return g->type >= 0 && is_float(t->type) ? (enum dtype)g->type : t->type;
}

static int64_t rows_of(const struct tensor_view *t)
{
    int64_t rows = 1;

    for (int d = 0; d + 1 < t->n_dims; d++)
        rows *= t->dims[d];
    return rows;
}

/* Bytes in the written type. */
static uint64_t bytes_of(const struct merging *g, const struct tensor_view *t)
{
    return t->n_dims ? (uint64_t)rows_of(t) * dtype_row_bytes(type_of(g, t), t->dims[t->n_dims - 1])
                     : t->bytes;
}

static int broken(const struct merging *g, struct error *e)
{
    return error_set(e, ERR_IO, "%s: cannot write: %s", g->path, strerror(errno));
}

/* ---- writing tensors ---- */

static int put_head(struct merging *g, struct error *e)
{
    const struct weight_file *f = g->m->file;
    json_t *root = json_object();
    uint64_t at = 0, n;
    char *text;
    int rc = 0;

    json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (size_t i = 0; i < weight_file_count(f) && !rc; i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        json_t *shape = json_array();

        if (!type_word(t->type) || t->packed)
            rc = error_set(e, ERR_USAGE,
                           "%s: tensor %s has the type %s; adapters are merged into F32, F16 and "
                           "BF16",
                           weight_file_path(f), t->name, dtype_info(t->type)->word);
        for (int d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_object_set_new(
            root, t->name,
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", rc ? "" : type_word(type_of(g, t)), "shape",
                      shape, "data_offsets", (json_int_t)at, (json_int_t)(at + bytes_of(g, t))));
        at += bytes_of(g, t);
    }
    text = rc ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (rc || !text)
        return rc ? rc : error_set(e, ERR_MEMORY, "%s: out of memory", g->path);
    n = (strlen(text) + 7) / 8 * 8;
    if (fwrite(&n, sizeof n, 1, g->f) != 1 || fprintf(g->f, "%-*s", (int)n, text) != (int)n)
        rc = broken(g, e);
    free(text);
    return rc;
}

static int tell(struct merging *g, struct error *e)
{
    if (!g->progress || (g->done - g->told < TELL && g->done < g->total))
        return 0;
    g->told = g->done;
    return g->progress(g->progress_ctx, g->done, g->total)
               ? error_set(e, ERR_CANCELLED, "interrupted; nothing was written")
               : 0;
}

/* to NULL: nothing to merge. */
static int put_rows(struct merging *g, const struct tensor_view *t, const struct merge_tensor *to,
                    struct error *e)
{
    int64_t cols = t->dims[t->n_dims - 1], rows = rows_of(t);
    size_t from = dtype_row_bytes(t->type, cols), bytes = dtype_row_bytes(type_of(g, t), cols);
    uint8_t *rounded = mem_alloc(bytes, 1);
    int rc = rounded ? 0 : error_set(e, ERR_MEMORY, "%s: out of memory", g->path);

    for (int64_t i = 0; i < rows && !rc; i++) {
        row_to_f32(t->type, (const uint8_t *)t->data + (size_t)i * from, cols, g->row);
        if (to)
            merge_tensor_row(to, i, g->strengths, g->row);
        row_from_f32(type_of(g, t), g->row, cols, rounded);
        rc = fwrite(rounded, 1, bytes, g->f) == bytes ? 0 : broken(g, e);
        g->done += bytes;
        rc = rc ? rc : tell(g, e);
    }
    mem_free(rounded);
    return rc;
}

static int put_tensor(struct merging *g, const struct tensor_view *t, struct error *e)
{
    struct merge_tensor to;
    int rc = is_float(t->type) ? merge_tensor_find(g->m, t, &to, e) : 0;

    g->report->tensors++;
    g->report->merged += rc > 0;
    if (rc < 0)
        return rc;
    if (rc || (type_of(g, t) != t->type && t->n_dims))
        return put_rows(g, t, rc ? &to : NULL, e);
    if (t->bytes && fwrite(t->data, 1, t->bytes, g->f) != t->bytes)
        return broken(g, e);
    g->done += t->bytes;
    return tell(g, e);
}

/* ---- the folder ---- */

static int check_places(const char *in, const char *out, struct error *e)
{
    struct stat a, b;

    if (stat(in, &a) || !S_ISDIR(a.st_mode))
        return error_set(e, ERR_USAGE,
                         "%s: no Hugging Face folder; give the file to write a name that ends in "
                         ".gguf",
                         in);
    if (mkdir(out, 0777) && errno != EEXIST)
        return error_set(e, ERR_IO, "%s: cannot be made: %s", out, strerror(errno));
    if (stat(out, &b) || !S_ISDIR(b.st_mode))
        return error_set(e, ERR_USAGE, "%s: is there and no folder", out);
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino
               ? error_set(e, ERR_USAGE, "%s: is what is read; give another folder", out)
               : 0;
}

static int check_room(const struct merging *g, struct error *e)
{
    struct statvfs s;
    uint64_t room;

    if (statvfs(g->out, &s))
        return 0;
    room = (uint64_t)s.f_bavail * s.f_frsize;
    return room >= g->total
               ? 0
               : error_set(e, ERR_IO, "%s: %.1f GB are free there, %.1f GB are to be written",
                           g->out, (double)room / 1e9, (double)g->total / 1e9);
}

static int open_all(struct merging *g, const char *in, const struct adapter_request *adapters,
                    int n, struct error *e)
{
    int64_t widest = 1;
    int rc;

    if ((rc = model_open_raw(&g->m, in, NULL, e)) < 0 ||
        (rc = merge_open(&g->adapters, g->strengths, g->m, adapters, n, in, e)) < 0)
        return rc;
    for (size_t i = 0; i < weight_file_count(g->m->file); i++) {
        const struct tensor_view *t = weight_file_at(g->m->file, i);

        g->total += bytes_of(g, t);
        if (t->n_dims && t->dims[t->n_dims - 1] > widest)
            widest = t->dims[t->n_dims - 1];
    }
    if (!(g->row = mem_alloc((size_t)widest, sizeof *g->row)))
        return error_set(e, ERR_MEMORY, "out of memory");
    return 0;
}

static int write_weights(struct merging *g, struct error *e)
{
    char final[PATH_MAX];
    int rc, fd;

    snprintf(final, sizeof final, "%s/" NAME, g->out);
    if (snprintf(g->path, sizeof g->path, "%s/.%s.%ld.part", g->out, NAME, (long)getpid()) >=
        (int)sizeof g->path)
        return error_set(e, ERR_USAGE, "%.64s...: the name is too long", g->out);
    if ((fd = file_open_write(g->path, O_CREAT | O_TRUNC, 0666, e)) < 0)
        return fd;
    if (!(g->f = fdopen(fd, "wb"))) {
        close(fd);
        return broken(g, e);
    }
    rc = put_head(g, e);
    for (size_t i = 0; i < weight_file_count(g->m->file) && !rc; i++)
        rc = put_tensor(g, weight_file_at(g->m->file, i), e);
    if (!rc && (fflush(g->f) || fsync(fd)))
        rc = broken(g, e);
    if (fclose(g->f) && !rc)
        rc = broken(g, e);
    if (!rc)
        rc = weight_file_check(g->m->file, e);
    if (!rc && rename(g->path, final))
        rc = broken(g, e);
    if (rc)
        unlink(g->path);
    return rc;
}

int merge_folder(const char *in, const char *out, int type, const struct adapter_request *adapters,
                 int n, int (*progress)(void *ctx, uint64_t done, uint64_t total),
                 void *progress_ctx, struct merge_report *report, struct error *e)
{
    struct merging g = {.out = out,
                        .type = type,
                        .progress = progress,
                        .progress_ctx = progress_ctx,
                        .report = report};
    int rc;

    *report = (struct merge_report){0};
    if ((rc = open_all(&g, in, adapters, n, e)) == 0 && (rc = check_places(in, out, e)) == 0 &&
        (rc = check_room(&g, e)) == 0 && (rc = write_weights(&g, e)) == 0)
        rc = companions_copy(in, out, e);
    report->bytes = g.done;
    mem_free(g.row);
    model_free(g.m);
    adapters_close(g.adapters);
    return rc;
}
