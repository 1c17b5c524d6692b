/* Interleaved measurement: several arms (settings, placements, servers) in rounds (A B A B), so
 * that changes of the machine affect all arms alike. Every mode that compares speeds uses this; the
 * caller defines what a run measures. Owner: the caller. Thread: the caller's. */
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
    /* mirrored; each pair of rounds starts with another arm, so that of any two arms each is first
     * equally often */
    TURNS_BALANCED,
    /* arm 0, the reference, first; the others mirrored, or rotated */
    TURNS_REFERENCE_MIRRORED,
    TURNS_REFERENCE_ROTATED,
};

struct turns {
    size_t n_arms;
    int rounds;   /* rounds that count */
    int warm_ups; /* rounds before them: numbers -warm_ups .. -1 */
    /* added to the round number that decides the order, to continue a series of rounds */
    unsigned begun;
    enum turns_order order;
    /* One run of an arm; position: its index in the round. 0, or negative with *e filled: stops
     * everything. */
    int (*run)(void *ctx, size_t arm, size_t position, int round, struct error *e);
    /* After the last arm of a round; may be NULL. */
    int (*round_done)(void *ctx, int round, struct error *e);
    /* Polled after every run (signals_stop, or the caller's); NULL: never stopped. */
    int (*stop)(void *ctx);
    void *ctx, *stop_ctx;
};

/* All rounds. Negative results of run or round_done; ERR_CANCELLED: stopped. */
int turns_run(const struct turns *t, struct error *e);
/* Adds a measured value. ERR_MEMORY. */
int turns_sample(struct series *s, double value, struct error *e);

#endif
