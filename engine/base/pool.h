/* A fixed set of threads that run one function together (SPMD) and meet at barriers. Owner: one
 * thread, which calls every function below except pool_barrier and is itself thread 0 of each run;
 * others must not use the pool. Several users on that thread (devices of two models) take turns: a
 * run ends before the next one begins, none begins inside another. Both are asserted. Waiting
 * threads spin for some tens of microseconds, then sleep in the kernel, so that an idle pool costs
 * nothing and one in use reacts at once. Nothing is allocated after pool_new; a run costs two
 * atomic hand-overs per thread. */
#ifndef ENGINE_BASE_POOL_H
#define ENGINE_BASE_POOL_H

#include "engine/base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX 256

struct pool;

/* n threads, the caller included (1 .. POOL_MAX). pin: thread i stays on the i-th physical core of
 * this process (the caller too; undone by pool_free). Failing to create a thread is an error;
 * failing to pin one is not. */
int pool_new(struct pool **out, int n, bool pin, struct error *e);
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);
/* Runs fn(ctx, tid, n) on all threads, tid 0 on the caller; returns when all have returned. */
void pool_run(struct pool *p, void (*fn)(void *ctx, int tid, int n), void *ctx);
/* Inside fn: returns when every thread of the run has called it. Writes before it are visible to
 * all after it. */
void pool_barrier(struct pool *p, int tid);

/* An elastic run: fn runs on the caller and on the threads that arrive in time; a thread that gets
 * no CPU delays the others only while it has taken a task. So fn may only do work taken in a phase,
 * and a task may only read what an earlier phase or the task itself made. All threads go through
 * the same phases, one after the other: pool_phase_open(p, tid, total); while ((i =
 * pool_phase_take(p, tid, chunk)) < total) …; pool_phase_close(p, tid); Chunks are divided into
 * as many parts as there are threads; each takes from its own part first, then from those of its
 * own memory node, then from the others'. chunk is one number per phase. close returns when all
 * tasks of the phase are done, by whichever thread. total < 2^24 - chunk * threads. Phases also
 * work in a run that all threads take part in; there pool_barrier may end one, so that no thread is
 * behind the others. */
void pool_run_elastic(struct pool *p, void (*fn)(void *ctx, int tid, int n), void *ctx);
/* From the next elastic run on only threads 0 .. n-1 take part, and phases have no parts of the
 * others; initially all do. */
void pool_elastic_limit(struct pool *p, int n);
/* From the next run on the threads' parts are in proportion to share[i] (1 .. POOL_SHARE), e.g. how
 * fast their cores are; initially equal. */
#define POOL_SHARE 1024
void pool_shares_set(struct pool *p, const int *share);
/* From the next run on: whether threads take the time of phases that have several tasks for each.
 * It costs two looks at the clock a phase. */
void pool_timed_set(struct pool *p, bool timed);
/* What thread i did in timed runs since the last call, between runs: phases, each the share of it
 * that the thread did; and its time in them without waiting for others, ns. */
void pool_timed_take(struct pool *p, int i, double *phases, uint64_t *ns);
/* How long thread i was runnable but had no core, ns since it started; always 0 where the system
 * does not report it. */
uint64_t pool_waited(const struct pool *p, int i);
void pool_phase_open(struct pool *p, int tid, int total);
/* Takes the next chunk: its first index, or total when nothing is left (or this thread missed the
 * phase). */
int pool_phase_take(struct pool *p, int tid, int chunk);
void pool_phase_close(struct pool *p, int tid);
/* Pure: the part that thread `tid` takes from after that of `victim` (at first its own), when
 * thread i of n is on memory node node[i] and threads of one node are adjacent; -1: it has tried
 * all. */
int pool_next_victim(const int *node, int n, int tid, int victim);
/* For tests, between runs: overrides the machine's nodes. */
void pool_nodes_set(struct pool *p, const int *node);
/* Start of thread i's part of a phase, i at most the number of threads: what it takes first, the
 * same in every phase of this size and of runs with the same shares and limit. */
int pool_part(const struct pool *p, int total, int chunk, int i);

/* Hands out 0 .. total-1 in chunks, first come first served. One per phase of work; reset while no
 * thread uses it. */
struct pool_share {
    _Alignas(64) atomic_int next;
    char pad[60];
};

static inline void pool_share_reset(struct pool_share *s)
{
    atomic_store_explicit(&s->next, 0, memory_order_relaxed);
}

/* Takes the next chunk: its first index, or total when nothing is left. */
static inline int pool_share_take(struct pool_share *s, int chunk, int total)
{
    int at = atomic_load_explicit(&s->next, memory_order_relaxed) < total
                 ? atomic_fetch_add_explicit(&s->next, chunk, memory_order_relaxed)
                 : total;

    return at < total ? at : total;
}

#endif
