/* Packing by all threads. The loading thread is thread 0 of a pool that lives as long as the load; pieces of a few MiB are taken by whoever
 * is free, so that threads of unequal speed end together. A piece maps its source pages with one system call, packs them while they
 * are warm, and gives them back: page faults cost more than the packing does, and the file's copy must not stay beside ours. */
#include "engine/model/load.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/device/cpu/pack.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define AHEAD 16                    /* pieces the disk reads in advance: populating pages alone asks for them a few at a time */
#define PIECE ((size_t)4 << 20)     /* source bytes: large enough to amortise a system call, small enough to share out evenly */

struct piece {
    const struct matrix_job *job;
    int first, count;               /* groups; mapped matrices: unused */
    size_t offset, bytes;           /* of the source in its tensor */
};

struct load {
    struct binding *b;
    uint8_t *arena;
    struct piece *pieces;
    int n_pieces, room;
    struct pool_share share;
    atomic_uint_fast64_t done;
    atomic_int cancelled;
    uint64_t total, told;
};

static int add_piece(struct load *l, struct piece p)
{
    if (l->n_pieces == l->room) {
        int room = l->room ? 2 * l->room : 1024;
        struct piece *grown = mem_resize(l->pieces, (size_t)room, sizeof *grown);

        if (!grown)
            return -1;
        l->pieces = grown;
        l->room = room;
    }
    l->pieces[l->n_pieces++] = p;
    l->total += p.bytes;
    return 0;
}

static int cut(struct load *l, const struct matrix_job *j, bool touch_mapped)
{
    const struct matrix *m = j->matrix;
    int width = m->width ? m->width : 1, groups = pack_groups(m->rows, m->width), step;
    size_t row = dtype_row_bytes(j->tensor->type, m->cols);

    if (j->mapped && !touch_mapped)
        return 0;
    step = (int)(PIECE / (row * (size_t)width)) + 1;
    for (int g = 0; g < groups; g += step) {
        int count = groups - g < step ? groups - g : step, end = (g + count) * width < m->rows ? (g + count) * width : m->rows;
        struct piece p = {.job = j, .first = g, .count = count, .offset = j->from + (size_t)g * (size_t)width * row,
                          .bytes = (size_t)(end - g * width) * row};

        if (add_piece(l, p))
            return -1;
    }
    return 0;
}

static void tell(struct load *l)
{
    const struct model_options *o = l->b->options;
    uint64_t now = clock_now();

    if (!o->progress || now - l->told < 100 * CLOCK_MILLI)
        return;
    l->told = now;
    if (o->progress(o->progress_ctx, atomic_load(&l->done), l->total))
        atomic_store(&l->cancelled, 1);
}

static void run(void *ctx, int tid, int n)
{
    struct load *l = ctx;
    const struct weight_file *f = l->b->model->file;
    int i;

    (void)n;
    while (!atomic_load_explicit(&l->cancelled, memory_order_relaxed) && (i = pool_share_take(&l->share, 1, l->n_pieces)) < l->n_pieces) {
        const struct piece *p = &l->pieces[i];
        const struct matrix_job *j = p->job;
        const struct matrix *m = j->matrix;

        if (i + AHEAD < l->n_pieces)
            weight_file_ahead(f, p[AHEAD].job->tensor, p[AHEAD].offset, p[AHEAD].bytes);
        weight_file_want(f, j->tensor, p->offset, p->bytes);
        if (!j->mapped) {
            pack_rows(l->arena + j->to, m->type, m->width, (const uint8_t *)j->tensor->data + j->from, j->tensor->type, m->rows, m->cols, p->first, p->count);
            weight_file_forget(f, j->tensor, p->offset, p->bytes);
        }
        atomic_fetch_add_explicit(&l->done, p->bytes, memory_order_relaxed);
        if (tid == 0)
            tell(l);
    }
}

void load_vectors(const struct binding *b, uint8_t *arena)
{
    for (size_t i = 0; i < b->n_vectors; i++) {
        const struct vector_job *v = &b->vectors[i];
        float *out = (float *)(arena + v->to);

        row_to_f32(v->tensor->type, (const uint8_t *)v->tensor->data + dtype_row_bytes(v->tensor->type, v->from), v->count, out);
        *v->vector = out;
    }
}

int load_weights(struct binding *b, uint8_t *arena, struct error *e)
{
    struct load *l = mem_alloc(1, sizeof *l);
    struct pool *pool = NULL;
    long pages = sysconf(_SC_PHYS_PAGES);
    /* Reading mapped weights ahead saves the first token the faults; with more of them than memory it would only push them out again. */
    bool touch = pages > 0 && b->total.mapped < (uint64_t)pages * 4096 / 10 * 8;
    int rc = 0;

    if (!l)
        return error_set(e, ERR_MEMORY, "out of memory for loading");
    l->b = b;
    l->arena = arena;
    l->told = clock_now();
    pool_share_reset(&l->share);
    load_vectors(b, arena);
    for (size_t i = 0; i < b->n_matrices; i++) {
        const struct matrix_job *j = &b->matrices[i];

        j->matrix->data = j->mapped ? (const uint8_t *)j->tensor->data + j->from : arena + j->to;
        if (cut(l, j, touch)) {
            rc = error_set(e, ERR_MEMORY, "out of memory for loading");
            goto out;
        }
    }
    if ((rc = pool_new(&pool, b->options->n_threads > 1 ? b->options->n_threads : 1, false, e)))
        goto out;
    pool_run(pool, run, l);
    if (atomic_load(&l->cancelled))
        rc = error_set(e, ERR_CANCELLED, "%s: loading was interrupted", weight_file_path(b->model->file));
    else if (!(rc = weight_file_check(b->model->file, e)) && b->options->progress)
        b->options->progress(b->options->progress_ctx, l->total, l->total);
out:
    pool_free(pool);
    mem_free(l->pieces);
    mem_free(l);
    return rc;
}
