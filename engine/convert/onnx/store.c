/* See store.h. Tensors are listed while the graph is built, as pieces: consecutive rows of one
 * matrix. If a tensor's pieces are contiguous in a mapped file, that is its location. */
#include "engine/convert/onnx/store.h"

#include "engine/adapter/merge.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/layout/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/fs.h>
#endif

#define INSIDE ((uint64_t)64 << 10) /* most bytes of a tensor stored in the graph */
#define TELL ((uint64_t)16 << 20)   /* bytes between two progress calls */
#define FILES 512
#define F16_MOST 65504.0f

/* Rows of a matrix; turns: each followed by a row of that. Or values. */
struct piece {
    const struct matrix *m, *turns;
    const float *values;
};

struct tensor {
    char name[96];
    enum dtype type;
    struct piece *pieces;
    int n_pieces;
    uint64_t bytes;
    int64_t elements;
    struct onnx_tensor *in_graph;
    int file;        /* index of the checkpoint's file with it, -1: none */
    uint64_t offset; /* there, or in the data file */
};

/* A file of the checkpoint. cloned: its copy is a reflink. */
struct source_file {
    const char *path, *name;
    const void *data;
    uint64_t size, used;
    bool copied, cloned;
};

struct onnx_store {
    struct onnx_graph *g;
    const struct model *m;
    int type;
    const float *strengths;
    bool failed;
    struct tensor *tensors;
    int n, room;
    struct source_file files[FILES];
    int n_files;
    float **kept;
    int n_kept;
    /* during writing */
    char path[PATH_MAX];
    FILE *f;
    float *row;
    uint8_t *rounded;
    uint64_t own, total; /* bytes of the data file, and with the copies */
    uint64_t done, told;
};

struct onnx_store *onnx_store_new(struct onnx_graph *g, const struct model *m, int type,
                                  const float *strengths)
{
    struct onnx_store *s = mem_alloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->g = g;
    s->m = m;
    s->type = type;
    s->strengths = strengths;
    return s;
}

void onnx_store_free(struct onnx_store *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        mem_free(s->tensors[i].pieces);
    for (int i = 0; i < s->n_kept; i++)
        mem_free(s->kept[i]);
    mem_free(s->tensors);
    mem_free(s->kept);
    mem_free(s);
}

/* ---- the list ---- */

static struct tensor *new_tensor(struct onnx_store *s, const char *name, int n_pieces)
{
    struct tensor *t;

    if (!MEM_ROOM(s->tensors, s->n, s->room, 64)) {
        s->failed = true;
        return NULL;
    }
    t = &s->tensors[s->n];
    *t = (struct tensor){.file = -1, .type = DTYPE_F32, .n_pieces = n_pieces};
    snprintf(t->name, sizeof t->name, "%s", name);
    if (!(t->pieces = mem_alloc((size_t)n_pieces, sizeof *t->pieces))) {
        s->failed = true;
        return NULL;
    }
    s->n++;
    return t;
}

float *onnx_store_keep(struct onnx_store *s, size_t n)
{
    float *p;

    if (!MEM_FIT(s->kept, s->n_kept + 1) || !(p = mem_alloc(n, sizeof *p))) {
        s->failed = true;
        return NULL;
    }
    return s->kept[s->n_kept++] = p;
}

static bool stays(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* The type a matrix is written in. */
static enum dtype type_of(const struct onnx_store *s, const struct matrix *m)
{
    return s->type >= 0 ? (enum dtype)s->type : m->lora || !stays(m->type) ? DTYPE_F32 : m->type;
}

static enum onnx_type onnx_type_of(enum dtype type)
{
    return type == DTYPE_F16 ? ONNX_FLOAT16 : type == DTYPE_BF16 ? ONNX_BFLOAT16 : ONNX_FLOAT;
}

/* Its type is that of its first matrix if all others have the same, else F32. */
static void settle_type(const struct onnx_store *s, struct tensor *t)
{
    t->type = type_of(s, t->pieces[0].m);
    for (int i = 0; i < t->n_pieces; i++)
        if (type_of(s, t->pieces[i].m) != t->type ||
            (t->pieces[i].turns && type_of(s, t->pieces[i].turns) != t->type))
            t->type = DTYPE_F32;
}

static void settle_size(struct tensor *t, int n, const int64_t *dims)
{
    t->elements = 1;
    for (int d = 0; d < n; d++)
        t->elements *= dims[d];
    t->bytes = (uint64_t)t->elements * (t->type == DTYPE_F32 ? 4 : 2);
}

/* Adds the tensor to the graph, and returns its value as F32. */
static const char *name_it(struct onnx_store *s, struct tensor *t, int n, const int64_t *dims,
                           enum onnx_type *raw)
{
    settle_size(t, n, dims);
    t->in_graph = onnx_weight(s->g, t->name, onnx_type_of(t->type), n, dims);
    if (raw)
        *raw = onnx_type_of(t->type);
    return raw || t->type == DTYPE_F32 ? onnx_weight_name(t->in_graph)
                                       : onnx_cast(s->g, onnx_weight_name(t->in_graph), ONNX_FLOAT);
}

/* ---- the checkpoint's files ---- */

/* Index of the file, -1: too many. */
static int file_number(struct onnx_store *s, const struct weight_place *p)
{
    for (int i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].path, p->path) == 0)
            return i;
    if (s->n_files == FILES)
        return -1;
    s->files[s->n_files] = (struct source_file){
        .path = p->path, .name = path_name(p->path), .data = p->file, .size = p->size};
    return s->n_files++;
}

/* Location of a matrix's rows in the checkpoint in the form to be written. false: none. */
static bool place_of_matrix(const struct onnx_store *s, const struct matrix *m,
                            struct weight_place *p)
{
    return weight_file_format(s->m->file) == WEIGHT_SAFETENSORS && !m->lora &&
           type_of(s, m) == m->type && weight_file_place(s->m->file, m->data, m->bytes, p);
}

static void share(struct onnx_store *s, struct tensor *t, const struct weight_place *p)
{
    t->file = file_number(s, p);
    t->offset = p->offset;
}

/* ---- adding tensors ---- */

const char *onnx_store_matrix(struct onnx_store *s, const char *name, const struct matrix *m,
                              enum onnx_type *raw)
{
    struct tensor *t = new_tensor(s, name, 1);
    struct weight_place p;

    if (!t)
        return "";
    t->pieces[0].m = m;
    settle_type(s, t);
    if (place_of_matrix(s, m, &p))
        share(s, t, &p);
    return name_it(s, t, 2, (const int64_t[]){m->rows, m->cols}, raw);
}

const char *onnx_store_values(struct onnx_store *s, const char *name, int n, const int64_t *dims,
                              const float *values)
{
    struct tensor *t = new_tensor(s, name, 1);

    if (!t)
        return "";
    t->pieces[0].values = values;
    return name_it(s, t, n, dims, NULL);
}

/* Whether the n matrices exactly fill a range of one file, and the index of each in it. */
static bool find_slots(const struct onnx_store *s, const struct matrix *const *matrices, int n,
                       int64_t *at, struct weight_place *first)
{
    struct weight_place p;
    uint64_t bytes = matrices[0]->bytes, most = 0;

    for (int i = 0; i < n; i++) {
        if (!place_of_matrix(s, matrices[i], &p) || matrices[i]->bytes != bytes ||
            matrices[i]->type != matrices[0]->type || (i && strcmp(p.path, first->path)))
            return false;
        if (!i || p.offset < first->offset)
            *first = p;
        most = p.offset > most ? p.offset : most;
        at[i] = (int64_t)p.offset;
    }
    if (most - first->offset != (uint64_t)(n - 1) * bytes)
        return false;
    for (int i = 0; i < n; i++) {
        uint64_t from = (uint64_t)at[i] - first->offset;

        if (from % bytes)
            return false;
        at[i] = (int64_t)(from / bytes);
    }
    return true;
}

const char *onnx_store_slots(struct onnx_store *s, const char *name,
                             const struct matrix *const *matrices, int n, int64_t *at)
{
    struct tensor *t = new_tensor(s, name, n);
    int64_t each = (int64_t)matrices[0]->rows * matrices[0]->cols;
    struct weight_place p = {0};
    bool there;

    if (!t)
        return "";
    there = find_slots(s, matrices, n, at, &p);
    for (int i = 0; i < n; i++) {
        at[i] = there ? at[i] : i;
        t->pieces[at[i]].m = matrices[i];
    }
    settle_type(s, t);
    if (there)
        share(s, t, &p);
    return name_it(s, t, 2, (const int64_t[]){n, each}, NULL);
}

const char *onnx_store_stack(struct onnx_store *s, const char *name,
                             const struct matrix *const *matrices,
                             const struct matrix *const *turns, int n)
{
    struct tensor *t = new_tensor(s, name, n);
    int64_t rows = (int64_t)matrices[0]->rows * (turns ? 2 : 1);

    if (!t)
        return "";
    for (int i = 0; i < n; i++)
        t->pieces[i] = (struct piece){.m = matrices[i], .turns = turns ? turns[i] : NULL};
    settle_type(s, t);
    return name_it(s, t, 3, (const int64_t[]){n, rows, matrices[0]->cols}, NULL);
}

/* ---- locations ---- */

static int path_in(struct onnx_store *s, const char *folder, const char *name, struct error *e)
{
    return snprintf(s->path, sizeof s->path, "%s/%s", folder, name) < (int)sizeof s->path
               ? 0
               : error_set(e, ERR_USAGE, "%.64s...: the name is too long", folder);
}

/* Creates a reflink of the file at s->path, if the file system supports it. */
static bool clone(const struct onnx_store *s, const char *path)
{
    int from = open(path, O_RDONLY | O_CLOEXEC),
        to = open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
#ifdef FICLONE
    bool done = from >= 0 && to >= 0 && ioctl(to, FICLONE, from) == 0;
#else
    bool done = false;
#endif

    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    if (to >= 0 && !done)
        unlink(s->path);
    return done;
}

/* Copies files that are mostly used: less than a quarter of one may be unused. */
static int choose_files(struct onnx_store *s, const char *folder, struct onnx_written *w,
                        struct error *e)
{
    int rc = 0;

    for (int i = 0; i < s->n; i++)
        if (s->tensors[i].file >= 0)
            s->files[s->tensors[i].file].used += s->tensors[i].bytes;
    for (int i = 0; i < s->n_files && !rc; i++) {
        struct source_file *f = &s->files[i];

        if (!(f->copied = f->used >= f->size - f->size / 4))
            continue;
        if ((rc = path_in(s, folder, f->name, e)) == 0 && !(f->cloned = clone(s, f->path)))
            w->copied += f->size;
    }
    return rc;
}

static void put_inside(struct onnx_store *s, const struct tensor *t)
{
    onnx_weight_inside(s->g, t->in_graph, t->pieces[0].values, t->bytes);
}

int onnx_store_place(struct onnx_store *s, const char *folder, struct onnx_written *w,
                     struct error *e)
{
    int rc;

    if (s->failed)
        return error_set(e, ERR_MEMORY, "out of memory for the list of tensors");
    *w = (struct onnx_written){.tensors = s->n};
    if ((rc = choose_files(s, folder, w, e)) < 0)
        return rc;
    for (int i = 0; i < s->n; i++) {
        struct tensor *t = &s->tensors[i];

        if (t->file >= 0 && !s->files[t->file].copied)
            t->file = -1;
        if (t->file >= 0) {
            onnx_weight_outside(s->g, t->in_graph, s->files[t->file].name, t->offset, t->bytes);
            w->shared += t->bytes;
        } else if (t->pieces[0].values && t->bytes <= INSIDE) {
            put_inside(s, t);
            t->bytes = 0;
        } else {
            t->offset = s->own;
            onnx_weight_outside(s->g, t->in_graph, ONNX_DATA, t->offset, t->bytes);
            s->own = (s->own + t->bytes + ONNX_ALIGN - 1) / ONNX_ALIGN * ONNX_ALIGN;
        }
    }
    w->own = s->own;
    s->total = w->own + w->copied;
    return 0;
}

/* ---- writing ---- */

struct telling {
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

static int broken(const struct onnx_store *s, struct error *e)
{
    return error_set(e, ERR_IO, "%s: cannot write: %s", s->path, strerror(errno));
}

static int put_bytes(struct onnx_store *s, const struct telling *to, const void *data, size_t n,
                     struct error *e)
{
    if (fwrite(data, 1, n, s->f) != n)
        return broken(s, e);
    s->done += n;
    if (!to->progress || (s->done - s->told < TELL && s->done < s->total))
        return 0;
    s->told = s->done;
    return to->progress(to->ctx, s->done, s->total)
               ? error_set(e, ERR_CANCELLED, "interrupted; nothing was written")
               : 0;
}

static int put_padding(struct onnx_store *s, const struct telling *to, uint64_t behind,
                       struct error *e)
{
    static const char zeros[ONNX_ALIGN];
    size_t n = (size_t)(ONNX_ALIGN - behind % ONNX_ALIGN) % ONNX_ALIGN;

    return n ? put_bytes(s, to, zeros, n, e) : 0;
}

static bool beyond_f16(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > F16_MOST)
            return true;
    return false;
}

static int put_row(struct onnx_store *s, const struct telling *to, const struct tensor *t,
                   const struct matrix *m, int row, struct error *e)
{
    size_t bytes = dtype_row_bytes(m->type, m->cols);

    row_to_f32(m->type, (const uint8_t *)m->data + (size_t)row * bytes, m->cols, s->row);
    merge_row(m, row, s->strengths, s->row);
    if (t->type == DTYPE_F16 && beyond_f16(s->row, m->cols))
        return error_set(e, ERR_VALUE,
                         "%s holds values that F16 has no room for: export it with --dtype f32 or "
                         "bf16",
                         t->name);
    row_from_f32(t->type, s->row, m->cols, s->rounded);
    return put_bytes(s, to, s->rounded, dtype_row_bytes(t->type, m->cols), e);
}

static int put_piece(struct onnx_store *s, const struct telling *to, const struct tensor *t,
                     const struct piece *p, struct error *e)
{
    int rc = 0;

    if (p->values)
        return put_bytes(s, to, p->values, t->bytes, e);
    for (int r = 0; r < p->m->rows && !rc; r++) {
        rc = put_row(s, to, t, p->m, r, e);
        if (!rc && p->turns)
            rc = put_row(s, to, t, p->turns, r, e);
    }
    return rc;
}

static int put_tensors(struct onnx_store *s, const struct telling *to, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < s->n && !rc; i++) {
        const struct tensor *t = &s->tensors[i];

        if (t->file >= 0 || !t->bytes)
            continue;
        for (int k = 0; k < t->n_pieces && !rc; k++)
            rc = put_piece(s, to, t, &t->pieces[k], e);
        rc = rc ? rc : put_padding(s, to, t->bytes, e);
    }
    return rc;
}

/* Allocates rows of the widest matrix. */
static int take_room(struct onnx_store *s, struct error *e)
{
    int widest = 1;

    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->tensors[i].n_pieces; k++) {
            const struct matrix *m = s->tensors[i].pieces[k].m;

            widest = m && m->cols > widest ? m->cols : widest;
        }
    s->row = mem_alloc((size_t)widest, sizeof *s->row);
    s->rounded = mem_alloc((size_t)widest, sizeof(float));
    return s->row && s->rounded ? 0 : error_set(e, ERR_MEMORY, "out of memory for the weights");
}

/* Writes a file at s->path; of: the file of the checkpoint to copy, NULL: our own tensors. */
static int write_file(struct onnx_store *s, const struct telling *to, const struct source_file *of,
                      struct error *e)
{
    int fd = file_open_write(s->path, O_CREAT | O_EXCL, 0666, e), rc = 0;

    if (fd < 0)
        return fd;
    if (!(s->f = fdopen(fd, "wb"))) {
        close(fd);
        return broken(s, e);
    }
    for (uint64_t at = 0; of && at < of->size && !rc; at += TELL)
        rc = put_bytes(s, to, (const char *)of->data + at,
                       of->size - at < TELL ? of->size - at : TELL, e);
    if (!of)
        rc = put_tensors(s, to, e);
    if (!rc && (fflush(s->f) || fsync(fd)))
        rc = broken(s, e);
    if (fclose(s->f) && !rc)
        rc = broken(s, e);
    return rc ? rc : weight_file_check(s->m->file, e);
}

static int write_own(struct onnx_store *s, const char *folder, const struct telling *to,
                     struct error *e)
{
    int rc;

    if ((rc = path_in(s, folder, ONNX_DATA, e)) == 0 && (rc = take_room(s, e)) == 0)
        rc = write_file(s, to, NULL, e);
    mem_free(s->row);
    mem_free(s->rounded);
    s->row = NULL;
    s->rounded = NULL;
    return rc;
}

int onnx_store_write(struct onnx_store *s, const char *folder,
                     int (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                     struct error *e)
{
    struct telling to = {progress, ctx};
    int rc = 0;

    for (int i = 0; i < s->n_files && !rc; i++)
        if (s->files[i].copied && !s->files[i].cloned &&
            (rc = path_in(s, folder, s->files[i].name, e)) == 0)
            rc = write_file(s, &to, &s->files[i], e);
    return rc || !s->own ? rc : write_own(s, folder, &to, e);
}
