/* How busy the machine is with other programs while the device measures (shape_table.h): what its
 * threads waited for their cores, or what others used of all cores, whichever is more. The latter
 * also counts on cores where nothing of ours waits: memory is shared. A small model's measurement
 * is over after a few ticks of the system's counters: then the while before it, from opening or
 * from the last measurement on, counts too. Engine thread. */
#include "engine/base/clock.h"
#include "engine/device/cpu/cpu.h"

#define TICKS 20 /* of a while that speaks for itself */

static uint64_t waited(const struct cpu_device *d, int threads)
{
    uint64_t sum = 0;

    for (int i = 0; i < threads; i++)
        sum += pool_waited(d->pool, i);
    return sum;
}

void tuning_watch(const struct cpu_device *d, struct tuning_watch *w, int threads)
{
    w->threads = threads;
    w->waited = waited(d, threads);
    w->start = clock_now();
    load_look(&w->load, d->stat_path ? d->stat_path : LOAD_STAT);
}

int tuning_busy(const struct cpu_device *d, const struct tuning_watch *w)
{
    uint64_t took = clock_now() - w->start + 1;
    double wall = (double)took * w->threads,
           share = 100 * (double)(waited(d, w->threads) - w->waited) / wall;
    struct load now;
    int others;

    load_look(&now, d->stat_path ? d->stat_path : LOAD_STAT);
    others = load_others(&w->load, &now, load_tick());
    if (share > others)
        others = (int)share;
    if (w != &d->since && took < TICKS * load_tick() && d->busy < TUNE_BUSY_MOST &&
        d->busy > others)
        others = d->busy;
    return others < TUNE_BUSY_MOST ? others : TUNE_BUSY_MOST - 1;
}
