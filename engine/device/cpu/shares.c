/* See shares.h. */
#include "engine/device/cpu/shares.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMOOTH 0.25 /* weight of a window beside those before */
#define SETTLED 2   /* windows until speeds are believed */
#define MOVED 32    /* a share that moves by less than 1/MOVED of a full one stays */

void shares_init(struct shares *s, int threads)
{
    assert(threads > 0 && threads <= POOL_MAX);
    memset(s, 0, sizeof *s);
    s->n = threads;
    for (int i = 0; i < threads; i++)
        s->share[i] = POOL_SHARE;
}

static bool share_equally(struct shares *s)
{
    bool changed = s->differ;

    s->differ = false;
    for (int i = 0; i < s->n; i++)
        s->share[i] = POOL_SHARE;
    return changed;
}

bool shares_judge(struct shares *s, const double *phases, const double *ns)
{
    double fastest = 0, most = 0, least = 1;
    int share[POOL_MAX];
    bool moved = false;

    for (int i = 0; i < s->n; i++)
        if (phases[i] > 0 && ns[i] > 0)
            fastest = fmax(fastest, phases[i] / ns[i]);
    if (!(fastest > 0))
        return false;
    for (int i = 0; i < s->n; i++) {
        double now = phases[i] > 0 && ns[i] > 0 ? phases[i] / ns[i] / fastest : 0;

        if (now > 0)
            s->speed[i] += (s->speed[i] > 0 ? SMOOTH : 1) * (now - s->speed[i]);
        most = fmax(most, s->speed[i]);
    }
    if (++s->windows < SETTLED)
        return false;
    for (int i = 0; i < s->n; i++) {
        double speed = s->speed[i] > 0 ? s->speed[i] / most : 1;

        least = fmin(least, speed);
        share[i] = (int)fmax(1, round(speed * POOL_SHARE));
        moved |= abs(share[i] - s->share[i]) > POOL_SHARE / MOVED;
    }
    if (least > (s->differ ? SHARES_EQUAL : SHARES_DIFFER))
        return share_equally(s);
    if (s->differ && !moved)
        return false;
    s->differ = true;
    memcpy(s->share, share, (size_t)s->n * sizeof *share);
    return true;
}

void shares_begin(struct shares *s, struct pool *p)
{
    pool_shares_set(p, s->share);
    pool_timed_set(p, s->n > 1 && s->job++ % SHARES_EVERY == 0);
}

bool shares_end(struct shares *s, struct pool *p)
{
    double sum = 0;
    bool changed;

    pool_timed_set(p, false);
    for (int i = 0; i < s->n && s->n > 1; i++) {
        double phases;
        uint64_t ns;

        pool_timed_take(p, i, &phases, &ns);
        s->phases[i] += phases;
        s->ns[i] += (double)ns;
        sum += s->ns[i];
    }
    if (sum < SHARES_WINDOW)
        return false;
    changed = shares_judge(s, s->phases, s->ns);
    memset(s->phases, 0, sizeof s->phases);
    memset(s->ns, 0, sizeof s->ns);
    return changed;
}
