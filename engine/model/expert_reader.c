/* See expert_reader.h. One lock for queues and states: it is taken a few times per piece, which
 * takes a disk a millisecond. */
#include "engine/model/expert_reader.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/file/direct.h"
#include "engine/layout/pack.h"
#include "engine/model/finite.h"
#include "engine/model/repack.h"

#include <pthread.h>
#include <string.h>

/* bytes of the file per read: enough for a disk's full rate, small enough to share out */
#define PIECE ((size_t)1 << 20)

struct reader_thread {
    struct expert_reader *reader;
    pthread_t thread;
    uint8_t *buffer, *scratch;
};

struct queue {
    struct read_task *first;
};

struct expert_reader {
    const struct weight_file *file;
    struct direct_file *direct;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct queue wanted, guessed;
    bool stop;
    struct error why;
    struct read_totals totals;
    int reading; /* pieces being read from disk */
    uint64_t since;
    uint8_t *memory;
    size_t bytes;
    struct reader_thread threads[EXPERT_READERS];
    int n_threads;
};

static void append(struct queue *q, struct read_task *t)
{
    struct read_task **at = &q->first;

    while (*at)
        at = &(*at)->next;
    t->next = NULL;
    *at = t;
}

static bool take_out(struct queue *q, const struct read_task *t)
{
    for (struct read_task **at = &q->first; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            return true;
        }
    return false;
}

/* Packed ones are read from the mapping: their codes, scales and zeros are separate. */
static bool from_mapping(const struct matrix_job *j)
{
    return j->tensor->packed != NULL;
}

static struct piece next_piece(const struct matrix_job *j, int first)
{
    return gathered(j) ? repack_whole(j) : repack_piece(j, first, repack_groups(j, PIECE));
}

/* Sizes of a thread's buffers: for reading, for converting. */
static void buffer_sizes(const struct matrix_job *jobs, size_t n, size_t *buffer, size_t *scratch)
{
    *buffer = *scratch = 0;
    for (size_t i = 0; i < n; i++) {
        struct piece p = next_piece(&jobs[i], 0);
        size_t room = from_mapping(&jobs[i]) ? 0 : direct_room(p.bytes),
               more = repack_scratch(&jobs[i]);

        *buffer = room > *buffer ? room : *buffer;
        *scratch = more > *scratch ? more : *scratch;
    }
    *scratch = (*scratch + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
}

uint64_t expert_reader_footprint(const struct matrix_job *jobs, size_t n)
{
    size_t buffer, scratch;

    buffer_sizes(jobs, n, &buffer, &scratch);
    return EXPERT_READERS * (uint64_t)(buffer + scratch);
}

/* The next piece of needed tasks, else of prefetches; a task without further pieces leaves its
 * queue. Locked. */
static struct read_task *hand_out(struct expert_reader *r, struct piece *p, uint8_t **to)
{
    struct queue *q = r->wanted.first ? &r->wanted : &r->guessed;
    struct read_task *t = q->first;
    const struct matrix_job *j;

    if (!t)
        return NULL;
    j = t->jobs[t->part];
    *p = next_piece(j, t->group);
    *to = t->to[t->part];
    t->group += p->count;
    t->begun = true;
    t->busy++;
    if (t->group >= pack_groups(j->matrix->rows, j->matrix->width)) {
        t->group = 0;
        t->part++;
    }
    if (t->part == t->n)
        take_out(q, t);
    return t;
}

static void count_begin(struct expert_reader *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->reading++ == 0)
        r->since = clock_now();
    pthread_mutex_unlock(&r->lock);
}

static void count_end(struct expert_reader *r, size_t bytes)
{
    pthread_mutex_lock(&r->lock);
    r->totals.bytes += bytes;
    if (--r->reading == 0)
        r->totals.ns += clock_now() - r->since;
    pthread_mutex_unlock(&r->lock);
}

/* Reads a piece and packs it. Called without the lock. */
static int do_piece(struct reader_thread *w, const struct piece *p, uint8_t *to, struct error *e)
{
    struct expert_reader *r = w->reader;
    const struct matrix_job *from = p->job;
    struct tensor_view view = *from->tensor;
    struct matrix_job job = *from;
    struct piece piece = *p;
    const uint8_t *bytes = NULL;
    bool finite;

    count_begin(r);
    if (from_mapping(from)) {
        weight_file_want(r->file, from->tensor, p->offset, p->bytes);
    } else {
        bytes = direct_read(r->direct, from->tensor, p->offset, p->bytes, w->buffer, e);
        /* a view of the tensor as if this piece were in place */
        view.data = (const void *)((uintptr_t)bytes - p->offset);
        job.tensor = &view;
        piece.job = &job;
    }
    count_end(r, p->bytes);
    if (!bytes && !from_mapping(from))
        return ERR_IO;
    finite = repack_look(&piece);
    finite &= repack(&piece, to, w->scratch);
    if (from_mapping(from))
        weight_file_forget(r->file, from->tensor, p->offset, p->bytes);
    return finite ? 0 : tensor_broken(r->file, from->tensor->name, e);
}

/* Locked. */
static void piece_over(struct expert_reader *r, struct read_task *t, int rc, const struct error *e)
{
    if (rc < 0 && !t->failed) {
        t->failed = true;
        r->why = *e;
        take_out(&r->wanted, t);
        take_out(&r->guessed, t);
        t->part = t->n;
    }
    if (--t->busy || t->part < t->n)
        return;
    atomic_store_explicit(&t->state, t->failed ? READ_FAILED : READ_DONE, memory_order_release);
    pthread_cond_broadcast(&r->done);
}

static void *reader_main(void *arg)
{
    struct reader_thread *w = arg;
    struct expert_reader *r = w->reader;
    struct read_task *t;
    struct piece p;
    uint8_t *to;

    pthread_setname_np(pthread_self(), "experts");
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct error e = {0};
        int rc;

        if (!(t = hand_out(r, &p, &to))) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        rc = do_piece(w, &p, to, &e);
        pthread_mutex_lock(&r->lock);
        piece_over(r, t, rc, &e);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int start(struct expert_reader *r, struct error *e)
{
    for (; r->n_threads < EXPERT_READERS; r->n_threads++) {
        struct reader_thread *w = &r->threads[r->n_threads];

        if (pthread_create(&w->thread, NULL, reader_main, w) != 0)
            break;
    }
    return r->n_threads ? 0 : error_set(e, ERR_MEMORY, "no thread for reading experts");
}

int expert_reader_new(struct expert_reader **out, const struct weight_file *f,
                      const struct matrix_job *jobs, size_t n, struct error *e)
{
    struct expert_reader *r = mem_alloc(1, sizeof *r);
    size_t buffer, scratch;
    int rc;

    *out = NULL;
    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory for reading experts");
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    r->file = f;
    buffer_sizes(jobs, n, &buffer, &scratch);
    r->bytes = EXPERT_READERS * (buffer + scratch);
    if (r->bytes && !(r->memory = mem_pages(r->bytes))) {
        rc = error_set(e, ERR_MEMORY, "out of memory for reading experts");
        goto out;
    }
    for (int i = 0; i < EXPERT_READERS; i++) {
        r->threads[i].reader = r;
        r->threads[i].buffer = r->memory + (size_t)i * (buffer + scratch);
        r->threads[i].scratch = r->threads[i].buffer + buffer;
    }
    if ((rc = direct_open(&r->direct, f, e)) == 0)
        rc = start(r, e);
out:
    if (rc < 0) {
        expert_reader_free(r);
        r = NULL;
    }
    *out = r;
    return rc;
}

void expert_reader_free(struct expert_reader *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i].thread, NULL);
    direct_close(r->direct);
    mem_pages_free(r->memory, r->bytes);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

void expert_reader_queue(struct expert_reader *r, struct read_task *t, bool guess)
{
    pthread_mutex_lock(&r->lock);
    t->part = t->group = t->busy = 0;
    t->failed = t->begun = false;
    t->guess = guess;
    atomic_store(&t->state, READ_QUEUED);
    append(guess ? &r->guessed : &r->wanted, t);
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void expert_reader_want(struct expert_reader *r, struct read_task *t)
{
    pthread_mutex_lock(&r->lock);
    if (take_out(&r->guessed, t))
        append(&r->wanted, t);
    t->guess = false;
    pthread_mutex_unlock(&r->lock);
}

bool expert_reader_cancel(struct expert_reader *r, struct read_task *t)
{
    bool out;

    pthread_mutex_lock(&r->lock);
    out = !t->begun && take_out(&r->guessed, t);
    if (out)
        atomic_store(&t->state, READ_IDLE);
    pthread_mutex_unlock(&r->lock);
    return out;
}

int expert_reader_wait(struct expert_reader *r, struct read_task *t, struct error *e)
{
    int rc = 0;

    if (atomic_load_explicit(&t->state, memory_order_acquire) == READ_DONE)
        return 0;
    pthread_mutex_lock(&r->lock);
    while (atomic_load(&t->state) == READ_QUEUED)
        pthread_cond_wait(&r->done, &r->lock);
    if (atomic_load(&t->state) == READ_FAILED) {
        rc = r->why.code;
        if (e)
            *e = r->why;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

struct read_totals expert_reader_totals(struct expert_reader *r)
{
    struct read_totals t;

    pthread_mutex_lock(&r->lock);
    t = r->totals;
    if (r->reading)
        t.ns += clock_now() - r->since;
    pthread_mutex_unlock(&r->lock);
    return t;
}
