/* How many prefill rows a pass may have beside decoding: so that it takes at most twice as long as
 * without them, or a tenth of a second if that is more; if more prompts wait than answers are
 * delayed, proportionally longer, up to a second. The cost of rows is learnt from the passes. Pure:
 * the caller passes the times (run/scheduler.c, engine's thread). */
#ifndef ENGINE_RUN_MIXED_PASS_H
#define ENGINE_RUN_MIXED_PASS_H

#include <stdbool.h>
#include <stdint.h>

struct scheduler {
    uint64_t decode_ns; /* of the newest pass with decoding only */
    double row_ns;      /* of a prefill row beside decoding; 0: unknown */
    double alone_ns;    /* of a row of the newest prompt computed alone; 0: unknown */
    int chunk;          /* rows of a chunk whose cost is known */
    int offered;        /* last result of scheduler_rows */
    bool prompts_next;  /* used by scheduler.c: whose turn it is, where no pass has rows of both */
    int failures;       /* used by scheduler.c: consecutive passes lost to a failing device */
};

/* Time limit of a mixed pass with so many answers while so many prompts wait; both at least 1. */
uint64_t scheduler_limit_ns(const struct scheduler *c, int answers, int waiting);
/* Prefill rows for the next pass. A chunk at most doubles: the cost of a row depends on how many
 * there are. A chunk not filled for lack of rows does not shrink the next one. */
int scheduler_rows(struct scheduler *c, int answers, int waiting);
/* A pass of so many answers and prefill rows took ns. */
void scheduler_learn(struct scheduler *c, int answers, int rows, uint64_t ns);

#endif
