/* How many rows of prompts a pass beside answers may have: that it takes no longer than two passes
 * without them, or than a tenth of a second where those take less; where several prompts wait, so
 * much longer as there are more of them than answers that stand still meanwhile, up to a second.
 * What rows cost is learnt from the passes themselves. Pure: who asks brings the times
 * (run/scheduler.c, engine's thread). */
#ifndef ENGINE_RUN_MIXED_PASS_H
#define ENGINE_RUN_MIXED_PASS_H

#include <stdint.h>

struct scheduler {
    uint64_t decode_ns; /* of the newest pass in which nothing but answers grew */
    double row_ns;      /* of a row of a prompt, beside those; 0: unknown */
    double alone_ns;    /* of a row of the newest prompt with nothing beside it; 0: unknown */
    int chunk;          /* rows of a chunk whose cost is known */
    int offered;        /* what scheduler_rows said last */
    int failures;       /* scheduler.c's own: passes in a row that a failing device has cost */
};

/* The most that a mixed pass should take, of so many answers while so many prompts wait; both at
 * least 1. */
uint64_t scheduler_limit_ns(const struct scheduler *c, int answers, int waiting);
/* Rows of prompts for the next one. A chunk grows by no more than twice: what a row costs depends
 * on how many there are. Where too few wait to fill it, the next one is not smaller for that. */
int scheduler_rows(struct scheduler *c, int answers, int waiting);
/* A pass of so many answers and rows of prompts took ns. */
void scheduler_learn(struct scheduler *c, int answers, int rows, uint64_t ns);

#endif
