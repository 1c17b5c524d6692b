/* How many threads of a pool compute while other processes use the same cores. Two threads on two
 * shared cores can do less than one with a core for itself, when a phase waits for a thread that
 * was preempted while holding a task, and when the scheduler weighs programs, not threads. The
 * better choice is measured, never guessed: once threads have waited for their cores, fewer are
 * tried, then all of them again, and the better number is kept for a while. Without waiting nothing
 * is tried. The results are the same with any number. Engine thread; nothing is allocated. One
 * instance for each kind of work whose best number may differ. */
#ifndef ENGINE_DEVICE_CPU_CROWD_H
#define ENGINE_DEVICE_CPU_CROWD_H

#include "engine/base/clock.h"
#include "engine/base/pool.h"

/* computing time: many time slices of the scheduler */
#define CROWD_WINDOW (100 * CLOCK_MILLI)
/* consecutive windows with waiting threads before anything is tried */
#define CROWD_SEEN 3
/* windows until the scheduler has redistributed the others over the cores */
#define CROWD_SETTLE 2
#define CROWD_MEASURE 2 /* windows of a trial that are measured */
/* how long its result is kept; doubled each time it changed nothing, */
#define CROWD_HOLD (2 * CLOCK_SECOND)
#define CROWD_HOLD_MOST (8 * CLOCK_SECOND) /* up to this */

enum crowd_state { CROWD_QUIET, CROWD_TRIAL, CROWD_HELD };

struct crowd {
    enum crowd_state state;
    int most, fewer, use; /* threads: without waiting, the alternative, of the next job */
    int seen, trial;      /* windows: consecutive ones with waiting, of the trial */
    double kept, tried;   /* rates: before the trial, in it */
    uint64_t hold, until; /* duration and end of the current choice */
    /* the current window */
    uint64_t busy;
    double work;
    uint64_t before[POOL_MAX]; /* each thread's waiting time at its start */
};

void crowd_init(struct crowd *c, int threads);
/* Called before and after a job that did `work` (any unit proportional to time) in ns. end: true if
 * it completed a window. */
void crowd_begin(struct crowd *c, struct pool *p);
bool crowd_end(struct crowd *c, const struct pool *p, uint64_t now, uint64_t ns, double work);
/* Pure: a window of c->use threads ended at `now` with that rate, in which `waiting` of them waited
 * for more than a quarter of it. */
void crowd_judge(struct crowd *c, uint64_t now, double rate, int waiting);

#endif
