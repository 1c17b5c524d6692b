/* How many threads of a pool compute while other processes want the same cores. Two threads on two
 * cores of which each is shared get less done than one that has a core for itself when a phase
 * waits for whoever was taken off its core with a task in hand, and when the scheduler weighs a
 * program, not its threads. Which is better here and now is measured, never guessed: once threads
 * have waited for their cores, fewer are tried, and later all of them again, and the better number
 * is kept for a moment. While nobody waits nothing is tried. What is computed is the same with any
 * number. Engine thread; nothing is allocated. One of them for each kind of work whose best number
 * may differ. */
#ifndef ENGINE_DEVICE_CPU_CROWD_H
#define ENGINE_DEVICE_CPU_CROWD_H

#include "engine/base/clock.h"
#include "engine/base/pool.h"

/* of computing: many time slices of the scheduler */
#define CROWD_WINDOW (100 * CLOCK_MILLI)
/* windows in a row in which threads waited, before anything is tried */
#define CROWD_SEEN 3
/* windows after which the scheduler has spread the others over the cores anew */
#define CROWD_SETTLE 2
#define CROWD_MEASURE 2 /* windows of a trial that count */
/* how long its outcome counts; twice as long each time it changed nothing, */
#define CROWD_HOLD (2 * CLOCK_SECOND)
#define CROWD_HOLD_MOST (8 * CLOCK_SECOND) /* to this */

enum crowd_state { CROWD_QUIET, CROWD_TRIAL, CROWD_HELD };

struct crowd {
    enum crowd_state state;
    int most, fewer, use; /* threads: while nobody waits, the other choice, of the next job */
    int seen, trial;      /* windows: with waiting in a row, of the trial */
    double kept, tried;   /* rates: before the trial, in it */
    uint64_t hold, until; /* what is held, how long, and to when */
    /* the window under way */
    uint64_t busy;
    double work;
    uint64_t before[POOL_MAX]; /* each thread's waiting when it began */
};

void crowd_init(struct crowd *c, int threads);
/* Around a job that did `work` (any unit that is proportional to time) in ns. end: true when it
 * ended a window. */
void crowd_begin(struct crowd *c, struct pool *p);
bool crowd_end(struct crowd *c, const struct pool *p, uint64_t now, uint64_t ns, double work);
/* Pure: a window of c->use threads ended at `now` with that rate, in which `waiting` of them waited
 * for more than a quarter. */
void crowd_judge(struct crowd *c, uint64_t now, double rate, int waiting);

#endif
