/* See medusa_heads.h. Opening takes two passes: one finds the tensors and counts the memory, the
 * other packs them into one allocation. */
#include "engine/run/medusa_heads.h"

#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/layout/pack.h"
#include "engine/model/finite.h"
#include "engine/model/model.h"
#include "engine/run/state/device_slot.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCKS 4   /* most blocks of a head */
#define ALIGN 4096 /* of a matrix in memory */
#define RANDOM_SEED 0x9e3779b97f4a7c15u

/* Source of a matrix: a tensor, or none. */
struct source {
    const struct tensor_view *t;
    bool made; /* initialised by medusa_request.init */
};

struct head {
    int blocks;
    struct matrix block[BLOCKS], out; /* out without rows: the model's head */
    struct source block_of[BLOCKS], out_of;
    float *bias[BLOCKS];
};

struct medusa_heads {
    const struct model *model;
    int n;
    struct head heads[MEDUSA_HEADS];
    uint8_t *data;
    size_t bytes;
};

static const char *const prefixes[] = {"", "medusa_head.", "medusa_heads.", "model.medusa_head."};

/* The tensor of head k with this suffix. */
static const struct tensor_view *find(const struct weight_file *f, int k, int block,
                                      const char *end)
{
    const struct tensor_view *t = NULL;
    char name[100];

    for (size_t i = 0; !t && i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(name, sizeof name, "%s%d.%d.%s", prefixes[i], k, block, end);
        t = weight_file_find(f, name);
    }
    return t;
}

static bool is_float(const struct tensor_view *t)
{
    return !t->packed && (t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16);
}

/* cols 0: it has one dimension. */
static int check(const struct weight_file *f, const struct tensor_view *t, int rows, int cols,
                 struct error *e)
{
    bool shaped = t->dims[0] == rows &&
                  (cols ? t->n_dims == 2 && t->dims[1] == cols : t->n_dims == 1);

    if (!is_float(t))
        return error_set(e, ERR_MODEL,
                         "%s: %s has the type %s; Medusa heads are read in F32, F16 and BF16",
                         weight_file_path(f), t->name, dtype_info(t->type)->word);
    if (shaped)
        return 0;
    return cols ? error_set(e, ERR_MODEL,
                            "%s: %s is %lld x %lld; heads of this model have %d x %d there",
                            weight_file_path(f), t->name, (long long)t->dims[0],
                            t->n_dims > 1 ? (long long)t->dims[1] : 1, rows, cols)
                : error_set(e, ERR_MODEL,
                            "%s: %s has %lld values; heads of this model have %d there",
                            weight_file_path(f), t->name, (long long)t->dims[0], rows);
}

/* A matrix's shape in memory. */
static struct matrix shape(const struct model *m, const struct source *from, int rows)
{
    bool quantised = dtype_is_quantised(m->head.type);
    struct matrix w = {.type = quantised ? DTYPE_Q8_0
                               : from->t ? from->t->type
                                         : DTYPE_F32,
                       .rows = rows,
                       .cols = m->hp.hidden};

    w.width = quantised ? m->head.width : 0;
    w.bytes = pack_bytes(w.type, w.rows, w.cols, w.width);
    return w;
}

static int find_block(struct head *h, const struct model *m, const struct weight_file *f, int k,
                      const struct tensor_view *t, struct error *e)
{
    int at = h->blocks, rc = check(f, t, m->hp.hidden, m->hp.hidden, e);
    const struct tensor_view *bias = find(f, k, at, "linear.bias");

    if (rc == 0 && bias)
        rc = check(f, bias, m->hp.hidden, 0, e);
    h->block_of[at].t = t;
    h->block[at] = shape(m, &h->block_of[at], m->hp.hidden);
    h->blocks++;
    return rc;
}

/* 1: the file has that head; 0: it does not. */
static int find_head(struct head *h, const struct model *m, const struct weight_file *f, int k,
                     struct error *e)
{
    const struct tensor_view *t;
    int rc = 0;

    while (rc == 0 && (t = find(f, k, h->blocks, "linear.weight"))) {
        if (h->blocks == BLOCKS)
            return error_set(e, ERR_MODEL, "%s: head %d has more than %d blocks",
                             weight_file_path(f), k, BLOCKS);
        rc = find_block(h, m, f, k, t, e);
    }
    if (rc == 0 && (t = find(f, k, h->blocks, "weight"))) {
        rc = check(f, t, m->hp.n_vocab, m->hp.hidden, e);
        h->out_of.t = t;
        h->out = shape(m, &h->out_of, m->hp.n_vocab);
    }
    return rc < 0 ? rc : h->blocks || h->out.rows;
}

static void make_head(struct head *h, const struct model *m, enum medusa_init init)
{
    if (init == MEDUSA_INIT_head)
        return;
    h->blocks = 1;
    h->block_of[0].made = h->out_of.made = true;
    h->block[0] = shape(m, &h->block_of[0], m->hp.hidden);
    h->out = shape(m, &h->out_of, m->hp.n_vocab);
}

/* Finds the heads of the file, if there is one, and adds initialised ones. */
static int find_all(struct medusa_heads *h, const struct medusa_request *r, struct weight_file *f,
                    struct error *e)
{
    int rc = 1;

    while (f && h->n < MEDUSA_HEADS && (rc = find_head(&h->heads[h->n], h->model, f, h->n, e)) > 0)
        h->n++;
    if (rc < 0)
        return rc;
    if (f && !h->n)
        return error_set(e, ERR_MODEL,
                         "%s: no Medusa heads: 0.0.linear.weight or 0.0.weight is expected (a .pt "
                         "file has to be saved as safetensors)",
                         weight_file_path(f));
    while (h->n < r->n)
        make_head(&h->heads[h->n++], h->model, r->init);
    return 0;
}

static size_t align(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t bytes_of(const struct medusa_heads *h)
{
    size_t bytes = 0;

    for (int k = 0; k < h->n; k++) {
        for (int b = 0; b < h->heads[k].blocks; b++)
            bytes += align(h->heads[k].block[b].bytes) +
                     align((size_t)h->model->hp.hidden * sizeof(float));
        bytes += align(h->heads[k].out.bytes);
    }
    return bytes;
}

/* The initialisation of torch's Linear: uniform within 1 / sqrt(cols). */
static void random_row(uint64_t *state, int n, float *row)
{
    float most = 1.0f / sqrtf((float)n);

    for (int i = 0; i < n; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        row[i] = ((float)(*state >> 40) / (float)(1 << 23) - 1.0f) * most;
    }
}

struct filling {
    struct medusa_heads *h;
    const struct weight_file *f;
    enum medusa_init init;
    uint64_t state;
    uint8_t *at;
    float *rows; /* one group, as F32 */
};

static int read_rows(const struct filling *p, const struct tensor_view *t, int first, int n,
                     int cols, struct error *e)
{
    size_t bytes = dtype_row_bytes(t->type, cols);

    for (int i = 0; i < n; i++) {
        row_to_f32(t->type, (const uint8_t *)t->data + (size_t)(first + i) * bytes, cols,
                   p->rows + (size_t)i * (size_t)cols);
        if (!values_finite(p->rows + (size_t)i * (size_t)cols, cols))
            return tensor_broken(p->f, t->name, e);
    }
    return 0;
}

static void make_rows(struct filling *p, int n, int cols)
{
    memset(p->rows, 0, (size_t)n * (size_t)cols * sizeof *p->rows);
    for (int i = 0; i < n && p->init == MEDUSA_INIT_random; i++)
        random_row(&p->state, cols, p->rows + (size_t)i * (size_t)cols);
}

/* Packs a matrix group by group of rows. */
static int fill(struct filling *p, struct matrix *w, const struct source *from, struct error *e)
{
    int step = w->width ? w->width : 1;
    size_t group = pack_bytes(w->type, step, w->cols, w->width);

    w->data = p->at;
    for (int r = 0; r < w->rows; r += step, p->at += group) {
        int n = w->rows - r < step ? w->rows - r : step, rc = 0;

        if (from->made)
            make_rows(p, n, w->cols);
        else
            rc = read_rows(p, from->t, r, n, w->cols, e);
        if (rc < 0)
            return rc;
        pack_rows(p->at, w->type, w->width, p->rows, DTYPE_F32, n, w->cols, 0, 1);
    }
    p->at = (uint8_t *)w->data + align(w->bytes);
    return 0;
}

static int fill_bias(struct filling *p, struct head *h, int k, int block, struct error *e)
{
    int hidden = p->h->model->hp.hidden;
    const struct tensor_view *t = p->f ? find(p->f, k, block, "linear.bias") : NULL;

    if (t && !h->block_of[block].made) {
        row_to_f32(t->type, t->data, hidden, (float *)(void *)p->at);
        if (!values_finite((float *)(void *)p->at, hidden))
            return tensor_broken(p->f, t->name, e);
    }
    h->block[block].bias = (float *)(void *)p->at;
    p->at += align((size_t)hidden * sizeof(float));
    return 0;
}

static int fill_head(struct filling *p, int k, struct error *e)
{
    struct head *h = &p->h->heads[k];
    int rc = 0;

    for (int b = 0; b < h->blocks && rc == 0; b++)
        if ((rc = fill(p, &h->block[b], &h->block_of[b], e)) == 0)
            rc = fill_bias(p, h, k, b, e);
    return rc == 0 && h->out.rows ? fill(p, &h->out, &h->out_of, e) : rc;
}

static int fill_all(struct medusa_heads *h, const struct medusa_request *r,
                    const struct weight_file *f, struct error *e)
{
    int width = h->model->head.width ? h->model->head.width : 1, rc = 0;
    struct filling p = {.h = h, .f = f, .init = r->init, .state = RANDOM_SEED};

    h->bytes = bytes_of(h);
    if (!h->bytes)
        return 0;
    h->data = mem_pages(h->bytes);
    p.rows = mem_alloc((size_t)width * (size_t)h->model->hp.hidden, sizeof *p.rows);
    p.at = h->data;
    if (!h->data || !p.rows)
        rc = error_set(e, ERR_MEMORY, "no memory for %d Medusa heads (%.0f MiB)", h->n,
                       (double)h->bytes / (1 << 20));
    for (int k = 0; k < h->n && rc == 0; k++)
        rc = fill_head(&p, k, e);
    mem_free(p.rows);
    return rc;
}

/* Opens the file and finds the heads; fills: packs them too. */
static int open_heads(struct medusa_heads *h, const struct medusa_request *r, bool fills,
                      struct error *e)
{
    struct weight_file *f = NULL;
    int rc = 0;

    if (h->model->head.cols != h->model->hp.hidden)
        return error_set(e, ERR_USAGE,
                         "the head of this model is narrower than its hidden states, which Medusa "
                         "heads do not know; --spec-type lookup needs none");
    if (r->path)
        rc = weight_file_open(&f, r->path, false, e);
    if (rc == 0)
        rc = find_all(h, r, f, e);
    if (rc == 0 && fills && (rc = fill_all(h, r, f, e)) == 0 && f)
        rc = weight_file_check(f, e);
    weight_file_close(f);
    return rc < 0 ? error_prefix(e, "--medusa") : 0;
}

int medusa_heads_open(struct medusa_heads **out, const struct model *m,
                      const struct medusa_request *r, struct error *e)
{
    struct medusa_heads *h = mem_alloc(1, sizeof *h);
    int rc;

    *out = NULL;
    if (!h)
        return error_set(e, ERR_MEMORY, "no memory for Medusa heads");
    h->model = m;
    if ((rc = open_heads(h, r, true, e)) < 0) {
        medusa_heads_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

void medusa_heads_free(struct medusa_heads *h)
{
    if (h && h->data)
        mem_pages_free(h->data, h->bytes);
    mem_free(h);
}

int medusa_heads_count(const struct medusa_heads *h)
{
    return h->n;
}

int medusa_heads_footprint(const struct model *m, const struct medusa_request *r, uint64_t *bytes,
                           struct error *e)
{
    struct medusa_heads *h = mem_alloc(1, sizeof *h);
    int rc;

    *bytes = 0;
    if (!h)
        return error_set(e, ERR_MEMORY, "no memory for Medusa heads");
    h->model = m;
    if ((rc = open_heads(h, r, false, e)) == 0)
        *bytes = bytes_of(h);
    medusa_heads_free(h);
    return rc;
}

static int multiply(struct device_slot *cpu, const struct matrix *w, const float *x, float *y,
                    struct error *e)
{
    struct multiply_job j = {.w = w, .rows = 1, .x = x, .y = y};
    int rc = cpu->ops->multiply(cpu->device, &j, e);

    return rc < 0 ? rc : cpu->ops->wait(cpu->device, e);
}

int medusa_heads_logits(const struct medusa_heads *h, int k, struct device_slot *cpu,
                        const float *state, float *work, float *logits, struct error *e)
{
    const struct head *head = &h->heads[k];
    int hidden = h->model->hp.hidden, rc;
    float *y = work + hidden;

    assert(k >= 0 && k < h->n);
    memcpy(work, state, (size_t)hidden * sizeof *work);
    for (int b = 0; b < head->blocks; b++) {
        if ((rc = multiply(cpu, &head->block[b], work, y, e)) < 0)
            return rc;
        for (int i = 0; i < hidden; i++)
            work[i] += y[i] / (1.0f + expf(-y[i]));
    }
    return multiply(cpu, head->out.rows ? &head->out : &h->model->head, work, logits, e);
}
