/* See adapter.h. Two steps: readers collect shares of matrices, whatever their format; then those
 * of one matrix are laid out in one piece of memory, A beside A and B beside B, so that a product
 * with several adapters is like one with a larger rank. */
#include "engine/adapter/adapter.h"

#include "engine/adapter/reading.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/layout/pack.h"
#include "engine/model/finite.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN 16 /* floats */

/* Formats are detected in this order; GGUF first, by its magic bytes. */
static const struct adapter_reader *const readers[] = {&adapter_gguf, &adapter_folder};

struct adapters {
    int n;
    struct adapter_info list[LORA_ADAPTERS];
    size_t n_matrices;
    struct lora *loras; /* n_matrices */
    struct lora_part *parts;
    float *values;
    size_t value_bytes; /* of values */
};

/* A tensor as floats, cached until the next one. */
struct widened {
    const struct tensor_view *t;
    float *x;
    size_t room; /* floats */
};

static int by_matrix(const void *a, const void *b)
{
    const struct share *x = a, *y = b;

    if (x->w != y->w)
        return (uintptr_t)x->w < (uintptr_t)y->w ? -1 : 1;
    return x->adapter - y->adapter;
}

/* Floats of A and of B. */
static size_t values_of_a(const struct share *s)
{
    return (size_t)(s->heads_of_a ? s->heads : 1) * (size_t)s->rank * (size_t)s->w->cols;
}

static size_t values_of_b(const struct share *s)
{
    return (size_t)s->rank * (size_t)(s->heads_of_a ? s->w->rows / s->heads : s->w->rows);
}

static size_t padded(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- reading ---- */

static int check_types(const struct reading *r, struct error *e)
{
    static const enum dtype read[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0};

    for (size_t i = 0; i < 2 * r->n; i++) {
        const struct share *s = &r->shares[i / 2];
        const struct tensor_view *t = i % 2 ? s->b.t : s->a.t;
        bool known = false;

        for (size_t k = 0; k < sizeof read / sizeof *read; k++)
            known |= t->type == read[k] && !t->packed;
        if (s->adapter == r->adapter && !known)
            return error_set(e, ERR_MODEL,
                             "%s: %s has the type %s; adapters are read in F32, F16, BF16 and Q8_0",
                             r->info->path, t->name, dtype_info(t->type)->word);
    }
    return 0;
}

/* Computes the figures of the adapter read last, from share `first` on. */
static int summarise(struct reading *r, size_t first, struct error *e)
{
    struct adapter_info *info = r->info;

    for (size_t i = first; i < r->n; i++) {
        const struct share *s = &r->shares[i];

        info->matrices++;
        info->expert_matrices += s->expert;
        info->rank_least = !info->rank_least || s->rank < info->rank_least ? s->rank
                                                                           : info->rank_least;
        info->rank_most = s->rank > info->rank_most ? s->rank : info->rank_most;
        info->bytes += (uint64_t)(values_of_a(s) + values_of_b(s)) * sizeof(float);
        if (!isfinite(s->scale))
            return error_set(e, ERR_MODEL, "%s: %s: its scale is no finite number", info->path,
                             s->a.t->name);
    }
    if (r->unplaced.failed)
        return error_set(e, ERR_MEMORY, "%s: out of memory", info->path);
    if (!info->matrices)
        return error_set(e, ERR_MODEL,
                         "%s: none of its %d tensors is for a matrix of this model%s%.200s",
                         info->path, info->n_unplaced, info->n_unplaced ? ": " : "",
                         r->unplaced.len ? r->unplaced.data : "");
    info->unplaced = r->unplaced.len ? strbuf_take(&r->unplaced, NULL) : NULL;
    return check_types(r, e);
}

static void name_adapter(struct adapter_info *info)
{
    char real[PATH_MAX];
    const char *p = realpath(info->path, real) ? real : info->path, *slash = strrchr(p, '/');

    p = slash && slash[1] ? slash + 1 : p;
    utf8_strip(info->name, sizeof info->name, p, strlen(p), 0);
}

static int read_one(struct reading *r, const struct adapter_request *asked, struct error *e)
{
    const struct adapter_reader *reader = NULL;
    size_t first = r->n;
    int rc;

    if (!(r->info->path = mem_string(asked->path)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", asked->path);
    r->info->strength = asked->strength;
    name_adapter(r->info);
    if (access(asked->path, F_OK))
        return error_set(e, ERR_IO, "%s: cannot open: %s", asked->path, strerror(errno));
    for (size_t i = 0; i < sizeof readers / sizeof *readers && !reader; i++)
        if (readers[i]->is(asked->path))
            reader = readers[i];
    if (!reader)
        return error_set(e, ERR_MODEL,
                         "%s: no adapter (a folder with adapter_config.json or a GGUF file is "
                         "expected)",
                         asked->path);
    rc = reader->read(r, asked->path, e);
    return rc < 0 ? rc : summarise(r, first, e);
}

/* ---- layout ---- */

/* Number of shares of one matrix from i on. */
static size_t run_of(const struct reading *r, size_t i)
{
    size_t n = 1;

    while (i + n < r->n && r->shares[i + n].w == r->shares[i].w)
        n++;
    return n;
}

static int check_once(const struct reading *r, const struct adapters *a, struct error *e)
{
    for (size_t i = 1; i < r->n; i++)
        if (r->shares[i].w == r->shares[i - 1].w &&
            r->shares[i].adapter == r->shares[i - 1].adapter)
            return error_set(e, ERR_MODEL, "%s: %s and %s are for one matrix",
                             a->list[r->shares[i].adapter].path, r->shares[i - 1].a.t->name,
                             r->shares[i].a.t->name);
    return 0;
}

static int widen(struct widened *w, const struct tensor_view *t, struct error *e)
{
    int64_t cols = t->dims[t->n_dims - 1], rows = 1;
    size_t n, bytes = dtype_row_bytes(t->type, cols);

    if (w->t == t)
        return 0;
    for (int i = 0; i + 1 < t->n_dims; i++)
        rows *= t->dims[i];
    n = (size_t)(rows * cols);
    if (n > w->room && !MEM_FIT(w->x, n))
        return error_set(e, ERR_MEMORY, "out of memory for %s", t->name);
    w->room = n > w->room ? n : w->room;
    for (int64_t i = 0; i < rows; i++) {
        row_to_f32(t->type, (const uint8_t *)t->data + (size_t)i * bytes, cols, w->x + i * cols);
        if (!values_finite(w->x + i * cols, (int)cols))
            return error_set(e, ERR_VALUE, "tensor %s of the adapter holds a NaN or an infinity",
                             t->name);
    }
    w->t = t;
    return 0;
}

static int64_t turned(const struct share *s, int64_t row)
{
    int64_t head = s->head ? row / s->head * s->head : 0, i = row - head, half = s->head / 2;

    switch (s->turn) {
    case TURN_TO_HALVES: return head + i % half * 2 + i / half;
    case TURN_TO_PAIRS: return head + i % 2 * half + i / 2;
    default: return row;
    }
}

/* Fills a (rank, cols), b (rank, rows) of a share; where each head has an A, they are a_step
 * apart. */
static int fill(const struct share *s, struct widened *wide, float *a, size_t a_step, float *b,
                struct error *e)
{
    int heads = s->heads_of_a ? s->heads : 1, rows = s->w->rows / heads, rc;
    int64_t each = s->heads && !s->heads_of_a ? rows / s->heads : INT64_MAX;

    if ((rc = widen(&wide[0], s->a.t, e)) || (rc = widen(&wide[1], s->b.t, e)))
        return rc;
    for (int h = 0; h < heads; h++)
        for (int64_t k = 0; k < s->rank; k++)
            for (int64_t c = 0; c < s->w->cols; c++)
                a[(size_t)h * a_step + (size_t)(k * s->w->cols + c)] =
                    wide[0].x[s->a.from + h * s->a.head + k * s->a.row +
                              head_order_at(&s->cols, c) * s->a.col];
    for (int64_t k = 0; k < s->rank; k++)
        for (int64_t i = 0; i < rows; i++) {
            int64_t row = head_order_at(&s->rows, turned(s, i));

            b[k * rows + i] = wide[1].x[s->b.from + row / each * s->b.head + row % each * s->b.row +
                                        k * s->b.col];
        }
    return 0;
}

/* Summed, since the order of shares is undefined. */
static uint64_t hash_of(const struct share *s, const float *a, size_t a_step, const float *b)
{
    size_t each = (size_t)s->rank * (size_t)s->w->cols;
    uint64_t h = hash_bytes(HASH_START, s->a.t->name, strlen(s->a.t->name));

    h = hash_add(hash_add(h, (uint64_t)s->a.from), (uint64_t)s->b.from);
    h = hash_bytes(h, &s->scale, sizeof s->scale);
    for (int i = 0; i < (s->heads_of_a ? s->heads : 1); i++, a += a_step)
        h = hash_bytes(h, a, each * sizeof *a);
    return hash_bytes(h, b, values_of_b(s) * sizeof *b);
}

static int fill_all(struct adapters *all, const struct share *s, size_t n, struct lora *to,
                    float *at, size_t b_at, struct widened *wide, struct error *e)
{
    size_t a_step = (size_t)to->rank * (size_t)s->w->cols;
    float *a = at, *b = at + b_at;
    int rc = 0;

    to->a = a;
    to->b = b;
    for (size_t i = 0; i < n && !rc; i++, s++) {
        struct adapter_info *info = &all->list[s->adapter];

        if ((rc = fill(s, wide, a, a_step, b, e)) < 0)
            return error_prefix(e, "%s", info->path);
        info->hash += hash_of(s, a, a_step, b);
        a += (size_t)s->rank * (size_t)s->w->cols;
        b += values_of_b(s);
    }
    return rc;
}

/* Floats of n shares of one matrix; *b_at: where B begins. */
static size_t values_of(const struct share *s, size_t n, size_t *b_at)
{
    size_t b = 0;

    *b_at = 0;
    for (size_t i = 0; i < n; i++) {
        *b_at += values_of_a(&s[i]);
        b += values_of_b(&s[i]);
    }
    *b_at = padded(*b_at);
    return *b_at + padded(b);
}

/* Allocates all memory and the lists; sizes follow from the sorted shares. */
static int take_room(struct adapters *a, const struct reading *r, bool data, struct error *e)
{
    size_t values = 0, b_at;

    for (size_t i = 0, n; i < r->n; i += n, a->n_matrices++) {
        n = run_of(r, i);
        values += values_of(&r->shares[i], n, &b_at);
    }
    a->value_bytes = values * sizeof *a->values;
    a->loras = mem_alloc(a->n_matrices, sizeof *a->loras);
    a->parts = mem_alloc(r->n, sizeof *a->parts);
    a->values = data ? mem_pages(a->value_bytes) : NULL;
    if (!a->loras || !a->parts || (data && !a->values))
        return error_set(e, ERR_MEMORY, "%.1f MB of memory for the adapters are not there",
                         (double)a->value_bytes / 1e6);
    return 0;
}

static int lay_out(struct adapters *a, struct reading *r, bool data, struct error *e)
{
    struct widened wide[2] = {{0}};
    struct lora_part *part;
    size_t values, b_at;
    float *at;
    int rc;

    if (r->n)
        qsort(r->shares, r->n, sizeof *r->shares, by_matrix);
    if ((rc = check_once(r, a, e)) < 0 || (rc = take_room(a, r, data, e)) < 0)
        return rc;
    part = a->parts;
    at = a->values;
    for (size_t i = 0, n, m = 0; i < r->n && !rc; i += n, m++) {
        struct lora *l = &a->loras[m];
        const struct share *s = &r->shares[i];

        n = run_of(r, i);
        values = values_of(s, n, &b_at);
        *l = (struct lora){.n_parts = (int)n, .parts = part, .heads = s->heads_of_a ? s->heads : 0};
        for (size_t k = 0; k < n; k++, l->rank += part++->rank)
            *part = (struct lora_part){s[k].adapter, s[k].rank, s[k].scale};
        if (data && !(rc = fill_all(a, s, n, l, at, b_at, wide, e)))
            at += values;
        s->w->lora = l;
    }
    mem_free(wide[0].x);
    mem_free(wide[1].x);
    return rc;
}

static void close_files(struct weight_file *files[][READING_FILES], int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < READING_FILES; k++)
            weight_file_close(files[i][k]);
}

int adapters_open(struct adapters **out, struct model *m, const struct adapter_request *asked,
                  int n, bool data, struct error *e)
{
    struct weight_file *files[LORA_ADAPTERS][READING_FILES] = {{NULL}};
    struct adapters *a = mem_alloc(1, sizeof *a);
    struct reading r = {.model = m};
    int rc;

    *out = NULL;
    if (!a)
        return error_set(e, ERR_MEMORY, "out of memory for the adapters");
    rc = n > LORA_ADAPTERS
             ? error_set(e, ERR_USAGE, "%d adapters; at most %d are computed", n, LORA_ADAPTERS)
             : family_of(&r.family, m->file, e);
    for (; rc == 0 && a->n < n; a->n++) {
        r.adapter = a->n;
        r.info = &a->list[a->n];
        r.info->hash = HASH_START;
        r.files[0] = r.files[1] = NULL;
        strbuf_clear(&r.unplaced);
        rc = read_one(&r, &asked[a->n], e);
        memcpy(files[a->n], r.files, sizeof r.files);
    }
    if (rc == 0 && (rc = lay_out(a, &r, data, e)) == 0)
        m->adapters = adapters_hash(a);
    close_files(files, a->n);
    strbuf_release(&r.unplaced);
    mem_free(r.shares);
    if (rc < 0) {
        adapters_close(a);
        a = NULL;
    }
    *out = a;
    return rc;
}

void adapters_close(struct adapters *a)
{
    if (!a)
        return;
    for (int i = 0; i < LORA_ADAPTERS; i++) {
        mem_free(a->list[i].path);
        mem_free(a->list[i].unplaced);
    }
    mem_pages_free(a->values, a->value_bytes);
    mem_free(a->loras);
    mem_free(a->parts);
    mem_free(a);
}

int adapters_count(const struct adapters *a)
{
    return a ? a->n : 0;
}

const struct adapter_info *adapters_at(const struct adapters *a, int i)
{
    return a && i >= 0 && i < a->n ? &a->list[i] : NULL;
}

uint64_t adapters_bytes(const struct adapters *a)
{
    return a ? a->value_bytes : 0;
}

uint64_t adapters_hash(const struct adapters *a)
{
    uint64_t h = HASH_START;

    for (int i = 0; a && i < a->n; i++)
        h = hash_add(h, a->list[i].hash);
    return a && a->n ? h : 0;
}
