/* See figures.h. */
#include "app/stats/figures.h"

#include "engine/base/clock.h"

#include <math.h>

double stats_joules_a_token(const struct stats *s, enum energy_source source)
{
    uint64_t tokens = s->prompt_tokens - s->cached_tokens + s->generated_tokens;

    return s->energy_seconds > 0 && tokens ? s->joules[source] / (double)tokens : NAN;
}

double stats_decode_rate(const struct stats *s)
{
    return s->later_tokens ? clock_rate((double)s->later_tokens, s->decode_ns) : 0;
}

double stats_prefill_rate(const struct stats *s)
{
    return s->prompt_tokens > s->cached_tokens
               ? clock_rate((double)(s->prompt_tokens - s->cached_tokens), s->prefill_ns)
               : 0;
}

static double wall_seconds(const struct stats *s)
{
    return clock_seconds(s->last->time_ns - s->first->time_ns);
}

double stats_cores_used(const struct stats *s)
{
    double wall = wall_seconds(s);

    if (s->load.seconds > 0)
        return s->load.cpu_s / s->load.seconds;

    return wall > 0 ? clock_seconds(s->last->cpu_ns - s->first->cpu_ns) / wall : 0;
}

double stats_known(uint64_t v)
{
    return v == SYSTEM_UNKNOWN ? NAN : (double)v;
}

double stats_since(uint64_t first, uint64_t last)
{
    return first == SYSTEM_UNKNOWN || last == SYSTEM_UNKNOWN || last < first
               ? NAN
               : (double)(last - first);
}

double stats_memory_share(const struct stats *s)
{
    return stats_known(s->last->rss) / stats_known(s->last->memory_total);
}

double stats_evenness(const uint32_t *counts, int n)
{
    double sum = 0, h = 0;

    for (int i = 0; i < n; i++)
        sum += counts[i];
    for (int i = 0; i < n; i++)
        if (counts[i])
            h -= counts[i] / sum * log2(counts[i] / sum);
    return sum > 0 && n > 1 ? h / log2(n) : NAN;
}

int stats_most_used(const uint32_t *counts, int n, double *share)
{
    double sum = 0;
    int best = 0;

    for (int i = 0; i < n; i++) {
        sum += counts[i];
        if (counts[i] > counts[best])
            best = i;
    }
    *share = sum > 0 ? counts[best] / sum : 0;
    return best;
}

double stats_disk_share(const struct stats *s)
{
    uint64_t time = s->prefill_ns + s->decode_ns;

    return time ? fmin(1, (double)s->paged.wait_ns / (double)time) : 0;
}

double stats_hit_rate(const struct expert_cache_stats *p)
{
    return p->hits + p->misses ? (double)p->hits / (double)(p->hits + p->misses) : NAN;
}

double stats_waited(const struct stats *s)
{
    double time = s->load.seconds * (s->n_threads > 0 ? s->n_threads : 1);

    return time > 0 && s->n_devices < 2 ? fmin(s->load.delay_s / time, 1) : 0;
}

double stats_others_used(const struct stats *s)
{
    return s->load.seconds > 0 ? s->load.others_s / s->load.seconds : 0;
}

bool stats_starved(const struct stats *s)
{
    int cores = s->last->n_cores > 0 ? s->last->n_cores : 1;

    return stats_waited(s) > STATS_STARVED ||
           (stats_others_used(s) > STATS_STARVED * cores &&
            stats_others_used(s) + stats_cores_used(s) > 0.9 * cores &&
            stats_cores_used(s) < 0.9 * s->n_threads);
}

double stats_share(uint64_t part, uint64_t of)
{
    return of ? (double)part / (double)of : NAN;
}
