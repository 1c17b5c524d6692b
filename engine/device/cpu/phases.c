/* Phases of a job (cpu.h): the pool hands out their tasks; each thread counts phases, so that data
 * it caches between tasks is known to be of the same phase. Compute threads. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>

void phase_open(struct cpu_device *d, int tid, int total)
{
    assert(tid >= 0 && tid < d->n_threads);
    d->threads[tid].phase++;
    pool_phase_open(d->pool, tid, total);
}

int phase_take(struct cpu_device *d, int tid, int chunk)
{
    return pool_phase_take(d->pool, tid, chunk);
}

int phase_part(const struct cpu_device *d, int total, int chunk, int tid)
{
    assert(tid >= 0 && tid <= d->n_threads);
    return pool_part(d->pool, total, chunk, tid);
}

void phase_end(struct cpu_device *d, int tid)
{
    pool_phase_close(d->pool, tid);
}
