/* Packing by all threads, or in the background. All threads: the loading thread is thread 0 of a
 * pool that lives as long as the load; each free thread takes pieces of a few MiB, so that threads
 * of unequal speed end together. A piece maps its source pages with one system call, packs them
 * while they are cached, and releases them: page faults cost more than the packing does, and the
 * file's copy must not stay beside ours. Background: touching fresh memory costs several times the
 * time of its bytes (clearing, and in a virtual machine the host's faults), so a first token that
 * waits for a copy of the weights waits long. The mapped file is available at once, and the CPU
 * device can read it (matrix.raw), only slower. So load_weights returns with nothing packed, and
 * background threads, fewer than compute, fill the arena matrix by matrix; storing NULL into `raw`
 * is the only notification. They pause during a first token, and if decoding hardly gains from
 * packed weights (prefill does) they use only the time that computing threads leave. Before all
 * that they map the file's pages in bulk, for a fault costs ten times as much inside a kernel. Each
 * piece is checked for non-finite values before it is packed: rounded activations hide a NaN, and
 * only the text would be wrong. What is packed in the background or stays mapped is checked there,
 * so that an error may come with a later token; little is checked at once. */
#include "engine/model/load.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/layout/pack.h"
#include "engine/file/packed.h"
#include "engine/model/finite.h"
#include "engine/model/gather.h"
#include "engine/model/numa.h"
#include "engine/model/repack.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* pieces read ahead from disk: populating pages alone reads only a few at a time */
#define AHEAD 16
/* source bytes: large enough to amortise a system call, small enough to share out evenly */
#define PIECE ((size_t)4 << 20)

/* source bytes that are checked and then packed, within the cache */
#define PART ((size_t)128 << 10)

#define PACKERS 8
/* A tenth of a core beside threads that compute without a pause: with 19 a whole answer of two
 * thousand tokens ended before all was packed. */
#define PACK_NICE 10
#define FIRST_HOLD 300 /* milliseconds after loading: a prompt may come soon */

struct load {
    const struct weight_file *file;
    const struct model_options *options; /* while loading only */
    struct matrix_job *jobs;             /* taken over from the binding */
    size_t n_jobs;
    atomic_int *left; /* per job: pieces still to be packed */
    uint8_t *arena;
    struct piece *pieces;
    int n_pieces, room;
    struct pool_share share, mapping;
    /* read ahead the mapped pages now, check them in the background */
    bool touching;
    bool slow;         /* decoding gains from packed weights */
    uint8_t *rounding; /* pack_now's threads: see rounding_bytes */
    size_t rounding_bytes;
    atomic_uint_fast64_t done;
    atomic_int cancelled;
    /* a tensor with a non-finite value; NULL: none found so far */
    _Atomic(const struct tensor_view *) broken;
    uint64_t total, told;
    /* background */
    pthread_t threads[PACKERS];
    int n_threads;
    atomic_uint_fast64_t hold; /* until this time */
};

static int add_piece(struct load *l, struct piece p)
{
    if (!MEM_ROOM(l->pieces, l->n_pieces, l->room, 1024))
        return -1;
    l->pieces[l->n_pieces++] = p;
    l->total += p.bytes;
    return 0;
}

/* Whether a matrix may be used before it is packed: only if it keeps its type. */
static bool is_late(const struct load *l, const struct matrix_job *j)
{
    return l->options->background && !j->mapped && !j->split.stride && !gathered(j) &&
           j->tensor->type == j->matrix->type;
}

static int cut_gathered(struct load *l, const struct matrix_job *j)
{
    atomic_fetch_add_explicit(&l->left[j - l->jobs], 1, memory_order_relaxed);
    return add_piece(l, repack_whole(j));
}

static int cut(struct load *l, const struct matrix_job *j)
{
    int groups = pack_groups(j->matrix->rows, j->matrix->width), step = repack_groups(j, PIECE);

    if (gathered(j))
        return cut_gathered(l, j);

    for (int g = 0; g < groups; g += step) {
        if (add_piece(l, repack_piece(j, g, step)))
            return -1;
        atomic_fetch_add_explicit(&l->left[j - l->jobs], 1, memory_order_relaxed);
    }
    return 0;
}

static void tell(struct load *l)
{
    const struct model_options *o = l->options;
    uint64_t now = clock_now();

    if (!o->progress || now - l->told < 100 * CLOCK_MILLI)
        return;
    l->told = now;
    if (o->progress(o->progress_ctx, atomic_load(&l->done), l->total))
        atomic_store(&l->cancelled, 1);
}

/* Records the first tensor with a non-finite value. */
static void note(struct load *l, const struct matrix_job *j, bool finite)
{
    const struct tensor_view *none = NULL;

    if (!finite)
        atomic_compare_exchange_strong(&l->broken, &none, gather_broken(j));
}

static void pack_part(struct load *l, const struct piece *p, uint8_t *scratch)
{
    const struct matrix_job *j = p->job;

    note(l, j, repack_look(p));
    if (!j->mapped)
        note(l, j, repack(p, l->arena + j->to, scratch));
}

/* scratch: of this thread, for jobs that quantise. */
static void pack_piece(struct load *l, const struct piece *p, uint8_t *scratch)
{
    const struct matrix_job *j = p->job;
    int step = repack_groups(j, PART), end = p->first + p->count;

    if (p + AHEAD < l->pieces + l->n_pieces)
        weight_file_ahead(l->file, p[AHEAD].job->tensor, p[AHEAD].offset, p[AHEAD].bytes);
    weight_file_want(l->file, j->tensor, p->offset, p->bytes);
    if (gathered(j))
        step = p->count;
    for (int g = p->first; g < end && !(j->mapped && l->touching); g += step) {
        struct piece part = repack_piece(j, g, end - g < step ? end - g : step);

        pack_part(l, &part, scratch);
    }
    atomic_fetch_add_explicit(&l->done, p->bytes, memory_order_relaxed);
}

static bool stopped(struct load *l)
{
    if (l->options->stop && l->options->stop(l->options->progress_ctx))
        atomic_store(&l->cancelled, 1);
    return atomic_load_explicit(&l->cancelled, memory_order_relaxed);
}

static void run(void *ctx, int tid, int n)
{
    struct load *l = ctx;
    int i;

    (void)n;
    while (!stopped(l) && !atomic_load(&l->broken) &&
           (i = pool_share_take(&l->share, 1, l->n_pieces)) < l->n_pieces) {
        const struct piece *p = &l->pieces[i];

        pack_piece(l, p, l->rounding ? l->rounding + (size_t)tid * l->rounding_bytes : NULL);
        if (!p->job->mapped)
            weight_file_forget(l->file, p->job->tensor, p->offset, p->bytes);
        if (tid == 0)
            tell(l);
    }
}

static void pack_behind(struct load *l)
{
    struct timespec moment = {.tv_nsec = 5000000};
    int i;

    while (!atomic_load_explicit(&l->cancelled, memory_order_relaxed)) {
        const struct piece *p;
        const struct matrix_job *j;

        if (clock_now() < atomic_load_explicit(&l->hold, memory_order_relaxed)) {
            nanosleep(&moment, NULL);
            continue;
        }
        if ((i = pool_share_take(&l->share, 1, l->n_pieces)) >= l->n_pieces)
            break;
        p = &l->pieces[i];
        j = p->job;
        pack_piece(l, p, NULL);
        /* The last piece of a matrix: from here on it is read packed. A thread still reading the
         * file's pages gets them mapped again. */
        if (atomic_fetch_sub(&l->left[j - l->jobs], 1) == 1 && !j->mapped) {
            atomic_store_explicit(&j->matrix->raw, NULL, memory_order_release);
            weight_file_forget(l->file, j->tensor, j->from,
                               (size_t)j->matrix->rows *
                                   dtype_row_bytes(j->tensor->type, j->matrix->cols));
        }
    }
}

static void *packer_main(void *arg)
{
    struct load *l = arg;
    int i;

    pthread_setname_np(pthread_self(), "pack");
    while (!atomic_load_explicit(&l->cancelled, memory_order_relaxed) &&
           (i = pool_share_take(&l->mapping, 1, l->n_pieces)) < l->n_pieces)
        weight_file_want(l->file, l->pieces[i].job->tensor, l->pieces[i].offset,
                         l->pieces[i].bytes);
#if defined(__linux__)
    if (!l->slow)
        setpriority(PRIO_PROCESS, (id_t)gettid(), PACK_NICE); /* only this thread: Linux' way */
#endif
    pack_behind(l);
    return NULL;
}

static void release(struct load *l)
{
    mem_free(l->pieces);
    mem_free(l->rounding);
    mem_free(l->left);
    mem_free(l->jobs);
    mem_free(l);
}

void load_stop(struct load *l)
{
    if (!l)
        return;
    atomic_store(&l->cancelled, 1);
    for (int i = 0; i < l->n_threads; i++)
        pthread_join(l->threads[i], NULL);
    release(l);
}

void model_hold(const struct model *m, int milliseconds)
{
    if (m->packing)
        atomic_store_explicit(&m->packing->hold,
                              milliseconds ? clock_now() + (uint64_t)milliseconds * CLOCK_MILLI : 0,
                              memory_order_relaxed);
}

bool model_packed(const struct model *m, uint64_t *done, uint64_t *total)
{
    *total = m->packing ? m->packing->total : 0;
    *done = m->packing ? atomic_load(&m->packing->done) : 0;
    return *done == *total;
}

void model_settle(const struct model *m)
{
    struct timespec moment = {.tv_nsec = 2000000};

    if (!m->packing)
        return;
    model_hold(m, 0);
    pack_behind(m->packing);
    for (size_t i = 0; i < m->packing->n_jobs; i++)
        while (atomic_load(&m->packing->jobs[i].matrix->raw)) {
            model_hold(m, 0);
            nanosleep(&moment, NULL);
        }
}

static void turn(const struct vector_job *v, float *out)
{
    const uint8_t *from = v->tensor->data;
    int64_t n = v->count / v->turned;
    float row[BIND_TURNED];

    for (int64_t i = 0; i < n; i++) {
        row_to_f32(v->tensor->type, from + dtype_row_bytes(v->tensor->type, i * v->turned),
                   v->turned, row);
        for (int j = 0; j < v->turned; j++)
            out[j * n + i] = row[j];
    }
}

static void reform(enum vector_form form, float *x, int64_t n)
{
    for (int64_t i = 0; i < n && form != VECTOR_PLAIN; i++)
        x[i] = form == VECTOR_ONE_MORE    ? 1.0f + x[i]
               : form == VECTOR_EXP       ? (float)exp((double)x[i])
               : form == VECTOR_SIZE      ? fabsf(x[i])
               : form == VECTOR_OVER_ROOT ? (float)((double)x[i] / sqrt((double)n))
                                          : (float)-exp((double)x[i]);
}

/* Whole rows of a packed tensor. */
static void unpack_vector(const struct vector_job *v, float *out)
{
    int64_t cols = v->tensor->packed->cols;

    for (int64_t i = 0; i < v->count; i += cols)
        packed_values(v->tensor, (v->from + i) / cols, out + i);
}

/* Numbers that F32 does not hold become -1, which is refused as any beyond the limit. */
static void read_numbers(const struct vector_job *v, float *out)
{
    const uint8_t *p = v->tensor->data;

    for (int64_t i = 0; i < v->count; i++) {
        int64_t n;
        int32_t small;

        if (v->tensor->type == DTYPE_F32) {
            memcpy(&out[i], p + 4 * i, 4);
            continue;
        }
        memcpy(&small, p + 4 * i, 4);
        n = small;
        if (v->tensor->type == DTYPE_I64)
            memcpy(&n, p + 8 * i, 8);
        out[i] = n >= 0 && n < 1 << 24 ? (float)n : -1.0f;
    }
}

void load_vectors(const struct binding *b, uint8_t *arena)
{
    for (size_t i = 0; i < b->n_vectors; i++) {
        const struct vector_job *v = &b->vectors[i];
        float *out = (float *)(arena + v->to);
        int64_t each = v->step == 1 ? v->count : 1;

        if (!v->tensor) {
            for (int64_t k = 0; k < v->count; k++)
                out[k] = v->fill;
        } else if (v->below) {
            read_numbers(v, out);
        } else if (v->turned) {
            turn(v, out);
            reform(v->form, out, v->count);
        } else if (v->tensor->packed) {
            unpack_vector(v, out);
        } else {
            for (int64_t k = 0; k < v->count; k += each)
                row_to_f32(v->tensor->type,
                           (const uint8_t *)v->tensor->data +
                               dtype_row_bytes(v->tensor->type, v->from + k * v->step),
                           each, out + k);
            reform(v->form, out, v->count);
        }
        *v->vector = out;
    }
}

/* The pieces of all matrices that are (or are not) packed late. */
static int cut_all(struct load *l, bool late)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t mapped = 0;
    bool touch;

    for (size_t i = 0; i < l->n_jobs; i++)
        mapped += l->jobs[i].mapped ? l->jobs[i].matrix->bytes : 0;
    /* Reading mapped weights ahead saves the first token the faults; if they exceed the memory it
     * would only evict them again. */
    touch = pages > 0 && mapped < (uint64_t)pages * 4096 / 10 * 8;
    l->n_pieces = 0;
    l->total = 0;
    for (size_t i = 0; i < l->n_jobs; i++)
        atomic_store(&l->left[i], 0);
    atomic_store(&l->done, 0);
    pool_share_reset(&l->share);
    l->touching = l->options->background && !late;
    for (size_t i = 0; i < l->n_jobs; i++) {
        const struct matrix_job *j = &l->jobs[i];
        bool due = j->mapped ? touch && (!late || l->options->background) : is_late(l, j) == late;

        if (due && cut(l, j))
            return -1;
    }
    return 0;
}

static int check_found(struct load *l, struct error *e)
{
    const struct tensor_view *t = atomic_load(&l->broken);

    return t ? tensor_broken(l->file, t->name, e) : weight_file_check(l->file, e);
}

int model_check(const struct model *m, struct error *e)
{
    return m->packing ? check_found(m->packing, e) : weight_file_check(m->file, e);
}

/* Whether a vector has whole numbers below its limit alone. */
static bool numbers_fit(const struct vector_job *v)
{
    const float *x = *v->vector;

    for (int64_t i = 0; i < v->count && v->below; i++)
        if (!(x[i] >= 0.0f && x[i] < (float)v->below && x[i] == floorf(x[i])))
            return false;
    return true;
}

/* Norms, biases and routers: checks all, since they are small. */
static int check_vectors(const struct binding *b, struct error *e)
{
    for (size_t i = 0; i < b->n_vectors; i++) {
        const struct vector_job *v = &b->vectors[i];

        if (!values_finite(*v->vector, (int)v->count))
            return tensor_broken(b->model->file, v->tensor->name, e);
        if (!numbers_fit(v))
            return error_set(e, ERR_MODEL, "%s: tensor %s has a number that is none from 0 to %d",
                             weight_file_path(b->model->file), v->tensor->name, v->below - 1);
    }
    return 0;
}

/* If no thread can be started the rest is packed at once: slower to start, otherwise the same. */
static int start_behind(struct load *l, struct model *m, struct error *e)
{
    int n = (l->options->n_threads + 1) / 2, rc;

    if (cut_all(l, true))
        return error_set(e, ERR_MEMORY, "out of memory for loading");
    if (!l->n_pieces)
        return 0;
    for (int i = 0; l->total <= l->options->looked_at_once && i < l->n_pieces && !stopped(l); i++) {
        weight_file_want(l->file, l->pieces[i].job->tensor, l->pieces[i].offset,
                         l->pieces[i].bytes);
        note(l, l->pieces[i].job, repack_look(&l->pieces[i]));
    }
    if ((rc = check_found(l, e)) < 0)
        return rc;
    l->slow = dtype_is_quantised(m->type) &&
              !(l->options->reads_raw && l->options->reads_raw(m->type));
    pool_share_reset(&l->mapping);
    for (size_t i = 0; i < l->n_jobs; i++)
        if (is_late(l, &l->jobs[i]))
            atomic_store(&l->jobs[i].matrix->raw,
                         (const uint8_t *)l->jobs[i].tensor->data + l->jobs[i].from);
    atomic_store(&l->hold, clock_now() + FIRST_HOLD * CLOCK_MILLI);
    for (n = n < PACKERS ? n : PACKERS; l->n_threads < n; l->n_threads++)
        if (pthread_create(&l->threads[l->n_threads], NULL, packer_main, l))
            break;
    if (!l->n_threads)
        pack_behind(l);
    l->options = NULL;
    m->packing = l;
    return 0;
}

/* For each thread one row of floats and a group of quantised rows, of the widest job. */
static int take_rounding(struct load *l)
{
    size_t threads = l->options->n_threads > 1 ? (size_t)l->options->n_threads : 1;

    for (size_t i = 0; i < l->n_jobs; i++) {
        size_t bytes = repack_scratch(&l->jobs[i]);

        l->rounding_bytes = bytes > l->rounding_bytes ? bytes : l->rounding_bytes;
    }
    return l->rounding_bytes && !(l->rounding = mem_alloc(threads, l->rounding_bytes)) ? -1 : 0;
}

static int pack_now(struct load *l, const struct binding *b, struct error *e)
{
    const struct model_options *o = l->options;
    struct pool *pool = NULL;
    int rc;

    if (cut_all(l, false) || take_rounding(l))
        return error_set(e, ERR_MEMORY, "out of memory for loading");
    if (l->n_pieces) {
        if ((rc = pool_new(&pool, o->n_threads > 1 ? o->n_threads : 1, false, e)))
            return rc;
        pool_run(pool, run, l);
        pool_free(pool);
    }
    if (atomic_load(&l->cancelled))
        return error_set(e, ERR_CANCELLED, "%s: loading was interrupted",
                         weight_file_path(b->model->file));
    if ((rc = check_found(l, e)))
        return rc;
    if (o->progress)
        o->progress(o->progress_ctx, l->total, l->total);
    return 0;
}

int load_weights(struct binding *b, uint8_t *arena, struct error *e)
{
    struct load *l = mem_alloc(1, sizeof *l);
    int rc;

    if (!l || !(l->left = mem_alloc(b->n_matrices, sizeof *l->left))) {
        mem_free(l);
        return error_set(e, ERR_MEMORY, "out of memory for loading");
    }
    l->file = b->model->file;
    l->options = b->options;
    l->arena = arena;
    l->told = clock_now();
    l->jobs = b->matrices;
    l->n_jobs = b->n_matrices;
    b->matrices = NULL;
    b->n_matrices = b->room_matrices = 0;
    for (size_t i = 0; i < l->n_jobs; i++)
        l->jobs[i].matrix->data = l->jobs[i].mapped
                                      ? (const uint8_t *)l->jobs[i].tensor->data + l->jobs[i].from
                                      : arena + l->jobs[i].to;
    /* before the first byte is written */
    numa_bind(b->model, arena, b->arena, l->options->n_threads);
    load_vectors(b, arena);
    if ((rc = check_vectors(b, e)) == 0 && (rc = pack_now(l, b, e)) == 0)
        rc = start_behind(l, b->model, e);
    if (!b->model->packing)
        release(l);
    return rc;
}
