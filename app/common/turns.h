/* Measuring by turns: several arms (settings, placements, servers) in interleaved rounds (A B A B),
 * so that a change of the machine meets all arms alike. Every mode that compares speeds goes
 * through here; what a run measures is the caller's. Owner: the caller. Thread: the caller's. */
#ifndef APP_COMMON_TURNS_H
#define APP_COMMON_TURNS_H

#include "engine/base/error.h"
#include "engine/base/series.h"

#include <stddef.h>

/* Which arm runs at which position of a round. */
enum turns_order {
    TURNS_SAME,     /* 0 1 2, 0 1 2 */
    TURNS_MIRRORED, /* 0 1 2, 2 1 0: a drift of the machine cancels */
    TURNS_ROTATED,  /* 0 1 2, 1 2 0 */
    /* mirrored; each pair of rounds begins with another arm, so that of any two arms each goes
     * first as often */
    TURNS_BALANCED,
    /* arm 0, which the others are held against, first; the others mirrored, or rotated */
    TURNS_REFERENCE_MIRRORED,
    TURNS_REFERENCE_ROTATED,
};

struct turns {
    size_t n_arms;
    int rounds;   /* that count */
    int warm_ups; /* rounds before them: numbers -warm_ups .. -1 */
    /* added to the number of the round where it decides the order: of rounds that go on where
     * earlier ones ended */
    unsigned begun;
    enum turns_order order;
    /* One run of an arm; position: which run of the round it is. 0, or negative with *e filled:
     * nothing more is run. */
    int (*run)(void *ctx, size_t arm, size_t position, int round, struct error *e);
    /* After the last arm of a round; NULL: nothing to do. */
    int (*round_done)(void *ctx, int round, struct error *e);
    /* Asked after every run (signals_stop, or the caller's); NULL: nobody stops it. */
    int (*stop)(void *ctx);
    void *ctx, *stop_ctx;
};

/* All rounds. What run or round_done return below 0; ERR_CANCELLED: stop said so. */
int turns_run(const struct turns *t, struct error *e);
/* Adds what a run measured. ERR_MEMORY. */
int turns_sample(struct series *s, double value, struct error *e);

#endif
