/* See turns.h. */
#include "app/common/turns.h"

static size_t mirrored(size_t i, unsigned round, size_t n)
{
    return round % 2 ? n - 1 - i : i;
}

/* The arm at position i of a round of n. */
static size_t arm_at(enum turns_order order, size_t i, unsigned round, size_t n)
{
    switch (order) {
    case TURNS_MIRRORED: return mirrored(i, round, n);
    case TURNS_ROTATED: return (i + round) % n;
    case TURNS_BALANCED: return (mirrored(i, round, n) + round / 2) % n;
    case TURNS_REFERENCE_MIRRORED: return i ? 1 + mirrored(i - 1, round, n - 1) : 0;
    case TURNS_REFERENCE_ROTATED: return i ? 1 + (i - 1 + round) % (n - 1) : 0;
    case TURNS_SAME:
    default: return i;
    }
}

static int run_round(const struct turns *t, int round, struct error *e)
{
    unsigned number = (unsigned)(round + t->warm_ups) + t->begun;
    int rc = 0;

    for (size_t i = 0; i < t->n_arms && rc == 0; i++) {
        rc = t->run(t->ctx, arm_at(t->order, i, number, t->n_arms), i, round, e);
        if (rc == 0 && t->stop && t->stop(t->stop_ctx))
            rc = error_set(e, ERR_CANCELLED, "interrupted");
    }
    return rc == 0 && t->round_done ? t->round_done(t->ctx, round, e) : rc;
}

int turns_run(const struct turns *t, struct error *e)
{
    int rc = 0;

    for (int round = -t->warm_ups; round < t->rounds && rc == 0; round++)
        rc = run_round(t, round, e);
    return rc;
}

int turns_sample(struct series *s, double value, struct error *e)
{
    return series_add(s, value) < 0 ? error_set(e, ERR_MEMORY, "out of memory for the samples") : 0;
}
