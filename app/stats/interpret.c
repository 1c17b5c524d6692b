/* The sentences of interpretation: what bounded the speed, and whether memory is near its end. */
#include "app/stats/figures.h"
#include "engine/base/clock.h"

#include <math.h>
#include <string.h>

/* share of the computing time spent waiting for experts on disk */
#define DISK_BOUND 0.5

static size_t interpret_starved(const struct stats *s, char *out, size_t size)
{
    char share[48] = "";

    if (stats_waited(s) > 0)
        snprintf(share, sizeof share, " waited %.0f %% of the time for a processor and",
                 100 * stats_waited(s));
    if (stats_others_used(s) > STATS_STARVED)
        return (size_t)snprintf(
            out, size,
            "Starved: other processes used %.1f of the %d cores; this one's %d threads%s got %.1f. "
            "The rate says nothing of this machine: run without them, or with fewer threads (-t).",
            stats_others_used(s), s->last->n_cores, s->n_threads, share, stats_cores_used(s));
    return (size_t)snprintf(
        out, size,
        "Starved: this process's threads%s got %.1f of %d cores, though others used hardly any: "
        "a limit of the container, or more threads (-t, now %d) than it may use.",
        share, stats_cores_used(s), s->last->n_cores, s->n_threads);
}

static size_t interpret_disk(const struct stats *s, char *out, size_t size)
{
    const struct expert_cache_stats *p = &s->paged;

    return (size_t)snprintf(
        out, size,
        "Disk-bound: computing waited %.0f %% of the time for experts, which came at %.0f MB/s; "
        "%.0f %% of those asked for were in memory. A larger --expert-cache, a faster disk or a "
        "smaller type help.",
        100 * stats_disk_share(s), clock_rate((double)p->read_bytes, p->read_ns) / 1e6,
        100 * (p->hits + p->misses ? stats_hit_rate(p) : 0));
}

/* Decode rate is interpreted by comparing the bytes read per token with the memory bandwidth. */
static size_t interpret_speed(const struct stats *s, char *out, size_t size)
{
    double rate = stats_decode_rate(s), mib = (double)s->active_bytes / (1 << 20),
           speed = rate * (double)s->active_bytes;
    double share = s->bandwidth > 0 ? speed / s->bandwidth : 0;
    const char *did = s->bandwidth_disturbed ? "did afterwards, beside other programs" : "can do";

    if (s->server[0])
        return (size_t)snprintf(out, size,
                                "The model runs at %s: rates are those at which tokens arrived "
                                "here, the first one's time holds the way there and back.",
                                s->server);
    if (!s->later_tokens)
        return (size_t)snprintf(out, size, "Too short an answer to tell what bounds the speed.");
    if (stats_starved(s))
        return interpret_starved(s, out, size);
    if (s->paged.slots && stats_disk_share(s) >= DISK_BOUND)
        return interpret_disk(s, out, size);
    if (s->in_cache)
        return (size_t)snprintf(out, size,
                                "Compute-bound: the model stays in the processor's cache "
                                "(measured), so faster or more cores would "
                                "help, not faster memory.");
    if (s->bandwidth <= 0)
        return (size_t)snprintf(out, size,
                                "Each token reads %.0f MiB, %.1f GB/s at this rate; what the "
                                "memory can do was not measured.",
                                mib, speed / 1e9);
    if (share >= 0.5)
        return (size_t)snprintf(out, size,
                                "Memory-bound: each token reads %.0f MiB, which is %.0f %% of the "
                                "%.1f GB/s that memory %s; %s, more "
                                "threads than %d will hardly help.",
                                mib, 100 * share, s->bandwidth / 1e9, did,
                                strcmp(s->type, "q4_0") ? "a smaller type (q4_0) reads less"
                                                        : "a shorter context reads less",
                                s->n_threads);
    return (size_t)snprintf(out, size,
                            "Compute-bound: reading takes only %.0f %% of the %.1f GB/s that "
                            "memory %s, with %.1f cores busy; more threads "
                            "(-t, now %d) help, a smaller type less.",
                            100 * share, s->bandwidth / 1e9, did, stats_cores_used(s),
                            s->n_threads);
}

static size_t interpret_memory(const struct stats *s, char *out, size_t size)
{
    double total = stats_known(s->last->memory_total),
           available = stats_known(s->last->memory_available);
    double swapped = stats_known(s->last->process_swap),
           faults = stats_since(s->first->major_faults, s->last->major_faults);

    if (swapped > 0)
        return (size_t)snprintf(
            out, size, " %.0f MiB of this process lie in swap: take a smaller type or context.",
            swapped / (1 << 20));
    if (available < 0.1 * total)
        return (size_t)snprintf(out, size,
                                " Only %.1f GiB of memory are left, so swapping is near: a smaller "
                                "context (-c) or type would help.",
                                available / (1 << 30));
    if (faults > 2000)
        return (size_t)snprintf(
            out, size,
            " %.0f pages had to be read from the disk; a second run finds them in memory.", faults);
    return (size_t)snprintf(out, size, " No risk of swapping: %.1f GiB are free.",
                            available / (1 << 30));
}

void stats_interpret(const struct stats *s, char *out, size_t size)
{
    size_t at = interpret_speed(s, out, size);

    if (at < size && !s->server[0] && !isnan(stats_known(s->last->memory_total)) &&
        !isnan(stats_known(s->last->memory_available)))
        interpret_memory(s, out + at, size - at);
}
