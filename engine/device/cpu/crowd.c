/* Thread count under load by other processes (crowd.h). */
#include "engine/device/cpu/crowd.h"

#include <assert.h>
#include <string.h>

void crowd_init(struct crowd *c, int threads)
{
    assert(threads > 0 && threads <= POOL_MAX);
    memset(c, 0, sizeof *c);
    c->most = c->use = threads;
    c->hold = CROWD_HOLD;
}

static void be_quiet(struct crowd *c)
{
    c->state = CROWD_QUIET;
    c->hold = CROWD_HOLD;
}

static void try_other(struct crowd *c)
{
    c->use = c->use == c->most ? c->fewer : c->most;
    c->state = CROWD_TRIAL;
    c->trial = 0;
    c->tried = 0;
}

static void decide(struct crowd *c, uint64_t now)
{
    if (c->tried / CROWD_MEASURE > c->kept) {
        c->hold = CROWD_HOLD;
        c->kept = c->tried / CROWD_MEASURE;
    } else {
        c->hold = c->hold * 2 < CROWD_HOLD_MOST ? c->hold * 2 : CROWD_HOLD_MOST;
        c->use = c->use == c->most ? c->fewer : c->most;
    }
    c->state = CROWD_HELD;
    c->until = now + c->hold;
}

/* Fewer by the number of contended cores, but at least half. */
static int fewer_than(int threads, int waiting)
{
    int half = (threads + 1) / 2;

    return threads - waiting > half ? threads - waiting : half;
}

void crowd_judge(struct crowd *c, uint64_t now, double rate, int waiting)
{
    bool all = c->use == c->most;

    assert(c->use >= 1 && c->use <= c->most);
    if (all) {
        c->seen = waiting > 0 ? c->seen + 1 : 0;
        if (waiting == 0 && c->state != CROWD_QUIET) /* the other load is gone */
            be_quiet(c);
        else if (waiting > 0 && c->state != CROWD_TRIAL)
            c->fewer = fewer_than(c->most, waiting);
    }
    if (c->state == CROWD_TRIAL) {
        c->tried += ++c->trial > CROWD_SETTLE ? rate : 0;
        if (c->trial == CROWD_SETTLE + CROWD_MEASURE)
            decide(c, now);
        return;
    }
    c->kept = c->kept > 0 ? (c->kept + rate) / 2 : rate;
    if (c->state == CROWD_QUIET ? c->seen >= CROWD_SEEN : now >= c->until)
        try_other(c);
}

static void window_open(struct crowd *c, const struct pool *p)
{
    c->busy = 0;
    c->work = 0;
    for (int i = 0; i < c->most; i++)
        c->before[i] = pool_waited(p, i);
}

void crowd_begin(struct crowd *c, struct pool *p)
{
    pool_elastic_limit(p, c->use);
    if (c->busy == 0 && c->most > 1)
        window_open(c, p);
}

bool crowd_end(struct crowd *c, const struct pool *p, uint64_t now, uint64_t ns, double work)
{
    int waiting = 0;

    c->busy += ns;
    c->work += work;
    if (c->busy < CROWD_WINDOW || c->most < 2)
        return false;
    for (int i = 0; i < c->use; i++)
        waiting += pool_waited(p, i) - c->before[i] > c->busy / 4;
    crowd_judge(c, now, clock_rate(c->work, c->busy), waiting);
    c->busy = 0;
    return true;
}
