/* What jobs of one kind have cost: in total, and typically of late. Plain data. Owner: a
 * device_slot; engine thread. */
#ifndef ENGINE_RUN_JOB_COST_H
#define ENGINE_RUN_JOB_COST_H

#include <stdint.h>

#define JOB_RECENT 15

struct job_cost {
    uint64_t ns, blocks, jobs;
    float recent[JOB_RECENT]; /* ns a block of the newest jobs */
};

/* A job of so many blocks (at least 1). */
void job_cost_add(struct job_cost *c, uint64_t ns, int blocks);
/* ns a block: the median of the newest jobs, since one that another program held up says nothing;
 * 0: there was none. */
double job_cost_typical(const struct job_cost *c);

#endif
