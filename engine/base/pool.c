/* The thread pool (pool.h). Workers wait on one word, `epoch`; barriers on another, `phase`. Each word has a count of sleepers so that
 * a hand-over between threads that are all awake makes no system call. */
#include "engine/base/pool.h"
#include "engine/base/mem.h"
#include "engine/base/topology.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 60000           /* longer than a phase of decoding takes to even out, shorter than a scheduler tick */

struct gate {
    _Alignas(64) atomic_uint word;
    atomic_int sleepers;
};

struct worker_arg {
    struct pool *pool;
    int tid;
};

struct pool {
    struct gate start, done, phase;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int running;
    void (*fn)(void *ctx, int tid, int n);
    void *ctx;
    bool stop;
    int n, created;
    bool pinned;
    cpu_set_t old_affinity;
    pthread_t threads[POOL_MAX];
    struct worker_arg args[POOL_MAX];
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
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

/* Returns once g->word is no longer `seen`. */
static void gate_wait(struct gate *g, unsigned seen)
{
    int64_t until = 0;

    for (unsigned i = 1; atomic_load_explicit(&g->word, memory_order_acquire) == seen; i++) {
        relax();
        if (i & 63)
            continue;
        if (!until)
            until = now_ns() + SPIN_NS;
        else if (now_ns() > until)
            break;
    }
    while (atomic_load(&g->word) == seen) {
        atomic_fetch_add(&g->sleepers, 1);
        if (atomic_load(&g->word) == seen)
            syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        atomic_fetch_sub(&g->sleepers, 1);
    }
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (atomic_load(&g->sleepers) > 0)
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *worker_main(void *arg)
{
    struct worker_arg *a = arg;
    struct pool *p = a->pool;
    char name[16];
    unsigned epoch = 0;

    snprintf(name, sizeof name, "compute-%d", a->tid);
    pthread_setname_np(pthread_self(), name);
    for (;;) {
        gate_wait(&p->start, epoch);
        epoch++;
        if (p->stop)
            return NULL;
        p->fn(p->ctx, a->tid, p->n);
        if (atomic_fetch_sub(&p->running, 1) == 1)
            gate_open(&p->done);
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
    p->created = 1;
    if (pin && pthread_getaffinity_np(pthread_self(), sizeof p->old_affinity, &p->old_affinity) == 0) {
        n_cpus = topology_core_cpus(cpus, n);
        p->pinned = n_cpus >= n;         /* more threads than cores: the scheduler knows better */
    }
    for (int i = 1; i < n; i++) {
        int code;

        p->args[i] = (struct worker_arg){p, i};
        code = pthread_create(&p->threads[i], NULL, worker_main, &p->args[i]);
        if (code) {
            pool_free(p);
            return error_set(e, ERR_MEMORY, "cannot start compute thread %d of %d: %s; use fewer threads (-t)", i + 1, n, strerror(code));
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
    p->stop = true;
    gate_open(&p->start);
    for (int i = 1; i < p->created; i++)
        pthread_join(p->threads[i], NULL);
    if (p->pinned)
        pthread_setaffinity_np(pthread_self(), sizeof p->old_affinity, &p->old_affinity);
    mem_pages_free(p, sizeof *p);
}

int pool_threads(const struct pool *p)
{
    return p->n;
}

void pool_run(struct pool *p, void (*fn)(void *ctx, int tid, int n), void *ctx)
{
    unsigned seen = atomic_load(&p->done.word);

    if (p->n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->running, p->n - 1);
    gate_open(&p->start);
    fn(ctx, 0, p->n);
    gate_wait(&p->done, seen);
}

void pool_barrier(struct pool *p, int tid)
{
    unsigned seen = atomic_load_explicit(&p->phase.word, memory_order_acquire);

    if (p->n == 1)
        return;
    if (atomic_fetch_add(&p->arrived, 1) == p->n - 1) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        gate_open(&p->phase);
    } else {
        gate_wait(&p->phase, seen);
    }
}
