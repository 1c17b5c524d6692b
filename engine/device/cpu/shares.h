/* How a pool's threads share the work of a phase: in proportion to the speeds of their cores, where
 * they differ (performance and efficiency cores). Speeds are measured on the work itself, for each
 * kind of it: bound by memory, an efficiency core is nearly as fast as a performance core; bound by
 * computing, half as fast. Tasks that a thread does not get to are taken by others anyhow
 * (pool.h); shares make that rare and pieces small where it counts. Bits do not depend on it.
 * Engine thread; nothing is allocated. */
#ifndef ENGINE_DEVICE_CPU_SHARES_H
#define ENGINE_DEVICE_CPU_SHARES_H

#include "engine/base/pool.h"

#define SHARES_EVERY 8         /* jobs, of which one is timed */
#define SHARES_WINDOW 20000000 /* ns of timed work of all threads before speeds are judged */
/* speeds of the slowest core, relative to the fastest, from which cores count as different and as
 * equal again */
#define SHARES_DIFFER 0.85
#define SHARES_EQUAL 0.92

struct shares {
    int n;
    bool differ; /* else all threads have equal shares */
    int share[POOL_MAX];
    double speed[POOL_MAX]; /* relative to the fastest; 0: not known */
    unsigned job;
    int windows;
    /* of timed jobs since the last judgement */
    double phases[POOL_MAX], ns[POOL_MAX];
};

void shares_init(struct shares *s, int threads);
/* Before and after a job; end: true if the shares have changed. */
void shares_begin(struct shares *s, struct pool *p);
bool shares_end(struct shares *s, struct pool *p);
/* Pure: a window in which thread i did so many phases (pool_timed_take) in so many ns; 0: it had
 * nothing to do. Returns whether the shares have changed. */
bool shares_judge(struct shares *s, const double *phases, const double *ns);

#endif
