/* See bandwidth.h. The bucket is one number: the time at which all tokens taken so far are paid
 * for. A take advances it by the bytes' time; if it is further ahead than the burst allows, the
 * caller waits for the difference. One atomic word, so no lock orders the devices. */
#include "engine/placement/bandwidth.h"

#include "engine/base/clock.h"
#include "engine/base/series.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define BURST_NS (200 * 1000ull)
#define MOST_NS (100 * CLOCK_MILLI)
#define SAMPLES 64

void bandwidth_init(struct bandwidth *b, enum bandwidth_mode mode, double bytes_per_second)
{
    memset(b, 0, sizeof *b);
    b->mode = mode;
    b->active = mode == BANDWIDTH_ON;
    b->rate = bytes_per_second > 0 ? bytes_per_second * 1e-9 : 0;
    b->burst_ns = BURST_NS;
    b->now = clock_now;
    b->sleep = clock_sleep;
}

uint64_t bandwidth_take(struct bandwidth *b, uint64_t bytes)
{
    uint64_t now, due, after, cost, wait;

    if (!b || !b->active || b->rate <= 0)
        return 0;
    assert(b->now && b->sleep);
    cost = (uint64_t)((double)bytes / b->rate);
    now = b->now();
    due = atomic_load_explicit(&b->due_ns, memory_order_relaxed);
    do
        after = (due > now ? due : now) + (cost < MOST_NS ? cost : MOST_NS);
    while (!atomic_compare_exchange_weak_explicit(&b->due_ns, &due, after, memory_order_relaxed,
                                                  memory_order_relaxed));
    /* the debt before these bytes must be paid first, except for the burst */
    wait = due > now + b->burst_ns ? due - now - b->burst_ns : 0;
    wait = wait < MOST_NS ? wait : MOST_NS;
    atomic_fetch_add_explicit(&b->taken, bytes, memory_order_relaxed);
    if (wait) {
        b->sleep(wait);
        atomic_fetch_add_explicit(&b->waited_ns, wait, memory_order_relaxed);
    }
    return wait;
}

double bandwidth_gain(const double *with_ns, const double *without_ns, int n)
{
    double gain[SAMPLES], sum = 0;

    assert(n >= 0);
    n = n < SAMPLES ? n : SAMPLES;
    for (int i = 0; i < n; i++)
        sum += gain[i] = log(without_ns[i] / with_ns[i]);
    return series_pairs_differ(gain, (size_t)n) ? sum / n : 0;
}

void bandwidth_decide(struct bandwidth *b, const double *with_ns, const double *without_ns, int n)
{
    if (b->mode == BANDWIDTH_AUTO)
        b->active = bandwidth_gain(with_ns, without_ns, n) > 0;
}
