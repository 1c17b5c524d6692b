/* The thread pool (pool.h). Threads wait on words (the epoch of runs, barriers, phases), each with
 * a count of sleepers so that a hand-over between threads that are all awake makes no system call.
 *
 * An elastic run waits for work, never for threads. Its state is words that include the number of
 * their phase, so that a thread that slept through some phases finds nothing to take in them: each
 * thread's `part` (phase, next index), `finished` (phase, tasks done) and the gate `over` (last
 * phase whose tasks are all done). `entry` counts the workers inside; a closed run cannot be
 * entered, and the caller waits only for the threads inside. */
#include "engine/base/pool.h"
#include "engine/base/futex.h"
#include "engine/base/mem.h"
#include "engine/base/one_thread.h"
#include "engine/base/topology.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__FreeBSD__)
#include <pthread_np.h>
#endif

/* longer than the imbalance of a decoding phase, shorter than a scheduler tick */
#define SPIN_NS 60000
#define TIMED_TASKS 4 /* of each thread in phases whose time is taken */
#define INDEX_BITS 24 /* tasks of a phase; the other 40 bits last for years of phases */
#define INDEX_MASK (((uint64_t)1 << INDEX_BITS) - 1)
#define INSIDE ((uint64_t)0xffff)
#define OPEN ((uint64_t)1 << 16) /* threads may enter */
#define ALL ((uint64_t)1 << 17)  /* all count as inside from the start, however late they arrive */
#define EPOCH_SHIFT 18

struct gate {
    _Alignas(64) atomic_uint word;
    atomic_int sleepers;
};

/* One thread's state in an elastic run; on its own cache line. */
struct place {
    _Alignas(64) uint64_t phase;
    int total, taken, next, victim;
    /* of timed runs */
    uint64_t began, ns;
    double phases;
};

/* The chunks that a thread takes before any other thread: the same rows of a matrix for every
 * token. */
struct part {
    _Alignas(64) atomic_uint_fast64_t work; /* phase << INDEX_BITS | next index */
};

struct worker_arg {
    struct pool *pool;
    int tid;
};

struct pool {
    struct gate start, done, phase, over;
    _Alignas(64) atomic_int arrived;
    /* epoch << EPOCH_SHIFT | ALL, OPEN | how many workers are inside */
    _Alignas(64) atomic_uint_fast64_t entry;
    _Alignas(64) atomic_uint_fast64_t finished; /* phase << INDEX_BITS | tasks done */
    struct place place[POOL_MAX];
    struct part part[POOL_MAX];
    /* set before a run: shares of the threads before i, of those that take part */
    int share[POOL_MAX], before[POOL_MAX + 1], present;
    bool timed;
    void (*fn)(void *ctx, int tid, int n);
    void *ctx;
    atomic_bool stop; /* read by threads that missed a run */
    atomic_int limit; /* of threads in an elastic run */
    int n, created;
    struct one_thread owner;
    bool running;                   /* inside pool_run or pool_run_elastic */
    atomic_int schedstat[POOL_MAX]; /* descriptor of each thread's times; -1: none */
    bool pinned;
    cpu_set_t old_affinity;
    int node[POOL_MAX];
    pthread_t threads[POOL_MAX];
    struct worker_arg args[POOL_MAX];
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#else
    sched_yield();
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns once g->word is `until` or later (numbers wrap). */
static void gate_reach(struct gate *g, unsigned until)
{
    int64_t limit = 0;
    unsigned now;

    for (unsigned i = 1;
         (int)((now = atomic_load_explicit(&g->word, memory_order_acquire)) - until) < 0; i++) {
        relax();
        if (i & 63)
            continue;
        if (!limit)
            limit = now_ns() + SPIN_NS;
        else if (now_ns() > limit)
            break;
    }
    while ((int)((now = atomic_load(&g->word)) - until) < 0) {
        atomic_fetch_add(&g->sleepers, 1);
        if (atomic_load(&g->word) == now)
            futex_wait(&g->word, now);
        atomic_fetch_sub(&g->sleepers, 1);
    }
}

/* Returns once g->word is no longer `seen`. */
static void gate_wait(struct gate *g, unsigned seen)
{
    gate_reach(g, seen + 1);
}

static void gate_wake(struct gate *g)
{
    if (atomic_load(&g->sleepers) > 0)
        futex_wake(&g->word);
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->word, 1);
    gate_wake(g);
}

static uint_fast64_t entry_of(unsigned epoch)
{
    return (uint_fast64_t)epoch << EPOCH_SHIFT;
}

/* Enters the run of this epoch only: the next one may have started meanwhile. */
static bool enter(struct pool *p, int tid, unsigned epoch)
{
    uint64_t e = atomic_load(&p->entry);

    while (e >> EPOCH_SHIFT == epoch && (e & (OPEN | ALL))) {
        if (!(e & ALL) && tid >= atomic_load_explicit(&p->limit, memory_order_relaxed))
            return false;
        if ((e & ALL) || atomic_compare_exchange_weak(&p->entry, &e, e + 1))
            return true;
    }
    return false;
}

/* The file stays that of the calling thread, whichever thread reads it. */
static int schedstat_open(void)
{
    return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

/* The parts of the first `present` threads. */
static void divide(struct pool *p, int present)
{
    for (int i = 0; i < p->n; i++)
        p->before[i + 1] = p->before[i] + (i < present ? p->share[i] : 0);
    p->present = present;
}

uint64_t pool_waited(const struct pool *p, int i)
{
    char line[80], *next;
    int fd = atomic_load_explicit(&p->schedstat[i], memory_order_acquire);
    ssize_t n = fd >= 0 ? pread(fd, line, sizeof line - 1, 0) : 0;

    assert(i >= 0 && i < p->n);
    if (n <= 0)
        return 0;
    line[n] = 0;
    strtoull(line, &next, 10); /* running time; then waiting time */
    return strtoull(next, NULL, 10);
}

static void *worker_main(void *arg)
{
    struct worker_arg *a = arg;
    struct pool *p = a->pool;
    char name[16];
    unsigned epoch = 0;

    snprintf(name, sizeof name, "compute-%d", a->tid);
    pthread_setname_np(pthread_self(), name);
    atomic_store(&p->schedstat[a->tid], schedstat_open());
    for (;;) {
        gate_wait(&p->start, epoch);
        /* skips missed runs */
        epoch = atomic_load(&p->start.word);
        if (atomic_load(&p->stop))
            return NULL;
        if (!enter(p, a->tid, epoch))
            continue;
        p->fn(p->ctx, a->tid, p->n);
        if ((atomic_fetch_sub(&p->entry, 1) & (OPEN | INSIDE)) == 1)
            gate_open(&p->done); /* closed, and this was the last inside */
    }
}

static void pin_thread(pthread_t t, int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(t, sizeof set, &set);
}

int pool_new(struct pool **out, int n, bool pin, struct error *e)
{
    struct pool *p;
    int cpus[POOL_MAX], n_cpus = 0;

    *out = NULL;
    if (n < 1 || n > POOL_MAX)
        return error_set(e, ERR_USAGE, "%d threads: must be 1 to %d", n, POOL_MAX);
    p = mem_pages(sizeof *p);
    if (!p)
        return error_set(e, ERR_MEMORY, "no memory for the thread pool");
    p->n = n;
    atomic_store(&p->limit, n);
    p->created = 1;
    for (int i = 0; i < n; i++)
        p->share[i] = POOL_SHARE;
    divide(p, n);
    for (int i = 1; i < n; i++)
        atomic_store(&p->schedstat[i], -1);
    atomic_store(&p->schedstat[0], schedstat_open());
    if (pin &&
        pthread_getaffinity_np(pthread_self(), sizeof p->old_affinity, &p->old_affinity) == 0) {
        n_cpus = topology_core_cpus(cpus, n);
        p->pinned = n_cpus >= n; /* more threads than cores: leave it to the scheduler */
    }
    if (p->pinned)
        topology_core_nodes(p->node, n);
    for (int i = 1; i < n; i++) {
        int code;

        p->args[i] = (struct worker_arg){p, i};
        code = pthread_create(&p->threads[i], NULL, worker_main, &p->args[i]);
        if (code) {
            pool_free(p);
            return error_set(e, ERR_MEMORY,
                             "cannot start compute thread %d of %d: %s; use fewer threads (-t)",
                             i + 1, n, strerror(code));
        }
        p->created++;
        if (p->pinned)
            pin_thread(p->threads[i], cpus[i]);
    }
    if (p->pinned)
        pin_thread(pthread_self(), cpus[0]);
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    assert(one_thread(&p->owner));
    atomic_store(&p->stop, true);
    gate_open(&p->start);
    for (int i = 1; i < p->created; i++)
        pthread_join(p->threads[i], NULL);
    for (int i = 0; i < p->created; i++)
        if (p->schedstat[i] >= 0)
            close(p->schedstat[i]);
    if (p->pinned)
        pthread_setaffinity_np(pthread_self(), sizeof p->old_affinity, &p->old_affinity);
    mem_pages_free(p, sizeof *p);
}

int pool_threads(const struct pool *p)
{
    return p->n;
}

static void run(struct pool *p, void (*fn)(void *ctx, int tid, int n), void *ctx, bool all)
{
    unsigned seen = atomic_load(&p->done.word);

    p->fn = fn;
    p->ctx = ctx;
    divide(p, all ? p->n : atomic_load(&p->limit));
    atomic_store(&p->entry, entry_of(atomic_load(&p->start.word) + 1) | OPEN |
                                (all ? ALL | (uint64_t)(p->n - 1) : 0));
    gate_open(&p->start);
    fn(ctx, 0, p->n);
    if (atomic_fetch_and(&p->entry, ~OPEN) & INSIDE)
        gate_wait(&p->done, seen);
}

/* A thread that missed an elastic run is phases behind: aligns the phase numbers. */
static void even_phases(struct pool *p)
{
    for (int i = 1; i < p->n; i++)
        p->place[i].phase = p->place[0].phase;
}

static void begin(struct pool *p, void (*fn)(void *ctx, int tid, int n))
{
    assert(one_thread(&p->owner));
    assert(fn && !p->running);
    even_phases(p);
    p->running = true;
}

void pool_run(struct pool *p, void (*fn)(void *ctx, int tid, int n), void *ctx)
{
    begin(p, fn);
    if (p->n == 1)
        fn(ctx, 0, 1);
    else
        run(p, fn, ctx, true);
    p->running = false;
}

void pool_run_elastic(struct pool *p, void (*fn)(void *ctx, int tid, int n), void *ctx)
{
    begin(p, fn);
    if (p->n == 1)
        fn(ctx, 0, 1);
    else
        run(p, fn, ctx, false);
    p->running = false;
}

void pool_elastic_limit(struct pool *p, int n)
{
    assert(one_thread(&p->owner));
    atomic_store(&p->limit, n < 1 ? 1 : n < p->n ? n : p->n);
}

void pool_phase_open(struct pool *p, int tid, int total)
{
    struct place *my = &p->place[tid];

    assert(tid >= 0 && tid < p->n);
    assert(total >= 0 && total < (1 << INDEX_BITS));
    my->phase++;
    my->total = total;
    my->taken = 0;
    my->next = 0;
    my->victim = tid;
    if (p->timed)
        my->began = (uint64_t)now_ns();
}

int pool_part(const struct pool *p, int total, int chunk, int i)
{
    int64_t at = (((int64_t)total + chunk - 1) / chunk) * p->before[i] / p->before[p->n] * chunk;

    assert(chunk > 0 && total >= 0);
    assert(i >= 0 && i <= p->n);
    return at < total ? (int)at : total;
}

/* A word of an earlier phase means that nothing of the part was taken yet. If the part was not
 * empty then, the word cannot be older than a completed phase, so a late thread never takes
 * completed tasks. */
static int take_from(struct pool *p, struct place *my, int i, int chunk)
{
    int begin = pool_part(p, my->total, chunk, i), end = pool_part(p, my->total, chunk, i + 1), at;
    uint64_t w = atomic_load_explicit(&p->part[i].work, memory_order_acquire);

    if (begin == end)
        return -1;
    do {
        if (w >> INDEX_BITS > my->phase)
            return -1;
        at = w >> INDEX_BITS == my->phase ? (int)(w & INDEX_MASK) : begin;
        if (at >= end)
            return -1;
    } while (!atomic_compare_exchange_weak(&p->part[i].work, &w,
                                           my->phase << INDEX_BITS | (uint64_t)(at + chunk)));
    return at;
}

int pool_next_victim(const int *node, int n, int tid, int victim)
{
    int lo = tid, hi = tid + 1, next = victim + 1 < n ? victim + 1 : 0;

    assert(tid >= 0 && tid < n && victim >= 0 && victim < n);
    while (lo > 0 && node[lo - 1] == node[tid])
        lo--;
    while (hi < n && node[hi] == node[tid])
        hi++;
    if (victim >= lo && victim < hi) {
        next = victim + 1 < hi ? victim + 1 : lo;
        if (next != tid)
            return next;
        next = hi < n ? hi : 0;
    }
    return next >= lo && next < hi ? -1 : next;
}

void pool_shares_set(struct pool *p, const int *share)
{
    assert(one_thread(&p->owner) && !p->running);
    for (int i = 0; i < p->n; i++) {
        assert(share[i] >= 1 && share[i] <= POOL_SHARE);
        p->share[i] = share[i];
    }
    divide(p, p->present);
}

void pool_timed_set(struct pool *p, bool timed)
{
    assert(one_thread(&p->owner) && !p->running);
    p->timed = timed;
}

void pool_timed_take(struct pool *p, int i, double *phases, uint64_t *ns)
{
    assert(one_thread(&p->owner) && !p->running);
    *phases = p->place[i].phases;
    *ns = p->place[i].ns;
    p->place[i].phases = 0;
    p->place[i].ns = 0;
}

void pool_nodes_set(struct pool *p, const int *node)
{
    assert(one_thread(&p->owner));
    memcpy(p->node, node, (size_t)p->n * sizeof *node);
}

int pool_phase_take(struct pool *p, int tid, int chunk)
{
    struct place *my = &p->place[tid];
    int at = my->next;

    assert(tid >= 0 && tid < p->n && chunk > 0);
    assert((int64_t)my->total + (int64_t)chunk * p->n < 1 << INDEX_BITS);
    if (p->n == 1) {
        my->next += chunk;
        return at < my->total ? at : my->total;
    }
    /* own part first, then the rest of others */
    while (my->victim >= 0 && (at = take_from(p, my, my->victim, chunk)) < 0)
        my->victim = pool_next_victim(p->node, p->n, tid, my->victim);
    if (my->victim < 0)
        return my->total;
    my->taken += chunk < my->total - at ? chunk : my->total - at;
    return at;
}

void pool_phase_close(struct pool *p, int tid)
{
    struct place *my = &p->place[tid];
    uint64_t f = atomic_load(&p->finished), now = 0;

    assert(tid >= 0 && tid < p->n);
    assert(my->taken <= my->total);
    if (p->n == 1 || my->total == 0)
        return;
    if (p->timed && my->total >= TIMED_TASKS * p->present) {
        my->ns += (uint64_t)now_ns() - my->began;
        my->phases += (double)my->taken / my->total;
    }
    if (my->taken) {
        do
            now = (f >> INDEX_BITS == my->phase ? f : my->phase << INDEX_BITS) +
                  (uint64_t)my->taken;
        while (!atomic_compare_exchange_weak(&p->finished, &f, now));
    }
    if (my->taken && (int)(now & INDEX_MASK) == my->total) {
        atomic_store(&p->over.word, (unsigned)my->phase);
        gate_wake(&p->over);
    } else {
        gate_reach(&p->over, (unsigned)my->phase);
    }
}

void pool_barrier(struct pool *p, int tid)
{
    unsigned seen = atomic_load_explicit(&p->phase.word, memory_order_acquire);

    assert(tid >= 0 && tid < p->n);
    if (p->n == 1)
        return;
    if (atomic_fetch_add(&p->arrived, 1) == p->n - 1) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        gate_open(&p->phase);
    } else {
        gate_wait(&p->phase, seen);
    }
}
