/* See machine_load.h. */
#include "app/common/machine_load.h"

#include <math.h>
#include <stdio.h>

#define OTHERS_LIMIT 0.08 /* CPUs used by other processes that are allowed in a quiet run */
/* system times are counted in ticks: the possible error per repetition */
#define TICK 0.01
#define DELAY_LIMIT 0.03 /* share of the time spent waiting for a CPU */
/* of all CPUs: this process has them, and its threads wait for each other */
#define BUSY 0.95
#define MHZ_LIMIT 0.85 /* of the highest frequency seen */

/* Resets the peak memory: memory used for measuring must not count as the model's. */
static void forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");

    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

void machine_load_begin(struct system *s, struct system_sample *before)
{
    forget_peak();
    system_read(s, before); /* shares are those since the previous sample */
}

static uint64_t grown(uint64_t before, uint64_t after)
{
    return before == SYSTEM_UNKNOWN || after == SYSTEM_UNKNOWN || after < before ? 0
                                                                                 : after - before;
}

void machine_load_end(struct system *s, const struct system_sample *before, struct machine_load *l)
{
    struct system_sample now;
    double seconds, mine, others;

    system_read(s, &now);
    seconds = (double)(now.time_ns - before->time_ns) * 1e-9;
    mine = (double)grown(before->cpu_ns, now.cpu_ns) * 1e-9;
    others = isnan(now.system_use) ? 0 : (double)now.system_use * now.n_cores * seconds - mine;
    l->repetitions++;
    l->n_cores = now.n_cores;
    l->seconds += seconds;
    /* reported when a wait ends: subtract the part before this repetition */
    l->delay_s += fmin((double)grown(before->delay_ns, now.delay_ns) * 1e-9, seconds * now.n_cores);
    l->cpu_s += mine;
    l->others_s += others > 0 ? others : 0;
    if (!isnan(now.mhz)) {
        l->mhz_most = fmax(l->mhz_most, (double)now.mhz);
        l->mhz_least = l->mhz_least > 0 ? fmin(l->mhz_least, (double)now.mhz) : (double)now.mhz;
    }
    l->read_bytes += grown(before->read_bytes, now.read_bytes);
    l->write_bytes += grown(before->write_bytes, now.write_bytes);
    l->read_calls += grown(before->read_calls, now.read_calls);
    l->write_calls += grown(before->write_calls, now.write_calls);
    l->rss = now.rss;
    if (now.rss_peak != SYSTEM_UNKNOWN && now.rss_peak > l->rss_peak)
        l->rss_peak = now.rss_peak;
}

bool machine_load_disturbed(const struct machine_load *l, char *why, size_t size)
{
    if (l->seconds <= 0)
        return false;
    if (l->others_s > OTHERS_LIMIT * l->seconds + TICK * l->repetitions)
        snprintf(why, size, "disturbed: other processes used %.2f CPUs", l->others_s / l->seconds);
    /* else for one of its own */
    else if (l->delay_s > DELAY_LIMIT * l->seconds && l->cpu_s < BUSY * l->n_cores * l->seconds)
        snprintf(why, size, "disturbed: threads waited %.2f s a second for a CPU",
                 l->delay_s / l->seconds);
    else if (l->mhz_least > 0 && l->mhz_least < MHZ_LIMIT * l->mhz_most)
        snprintf(why, size, "disturbed: the clock fell from %.0f to %.0f MHz", l->mhz_most,
                 l->mhz_least);
    else
        return false;
    return true;
}
