/* See routing.h. A table instead of a generator in the engine: no random numbers are drawn while
 * the clock runs, every device and chunk size sees the same choice, and the engine only does a
 * look-up. */
#include "app/bench/routing.h"

#include "engine/base/mem.h"

#define PERIOD 1024 /* positions until the table repeats */

const char *const bench_routing_words[] = {"text", "random", "uniform", "zipf", "single"};

/* splitmix64 (Steele, Lea, Flood 2014), as a number in 0 .. 1. */
static double draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* A permutation of the experts for the layer, so that layers do not have the same favourites. */
static void shuffle(uint16_t *order, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++)
        order[i] = (uint16_t)i;
    for (int i = n; i-- > 1;) {
        int j = (int)(draw(state) * (i + 1));
        uint16_t t = order[i];

        order[i] = order[j];
        order[j] = t;
    }
}

static double weight_of(enum bench_routing kind, int rank)
{
    return kind == ROUTING_ZIPF ? 1.0 / (rank + 1) : 1.0;
}

/* `used` ranks out of n, without replacement. taken: n flags, all false before and after. */
static void draw_ranks(enum bench_routing kind, int n, int used, uint64_t *state, bool *taken,
                       int *ranks)
{
    for (int i = 0; i < used; i++) {
        double left = 0, mark;
        int last = 0;

        for (int r = 0; r < n; r++)
            left += taken[r] ? 0 : weight_of(kind, r);
        mark = draw(state) * left;
        for (int r = 0; r < n && mark >= 0; r++)
            if (!taken[r]) {
                last = r;
                mark -= weight_of(kind, r);
            }
        taken[last] = true;
        ranks[i] = last;
    }
    for (int i = 0; i < used; i++)
        taken[ranks[i]] = false;
}

int bench_routing_init(struct imposed_routing *out, enum bench_routing kind, int n_layers,
                       int n_experts, int used, unsigned seed, struct error *e)
{
    int period = kind == ROUTING_SINGLE ? 1 : PERIOD;
    uint16_t *table = mem_alloc((size_t)n_layers * (size_t)period * (size_t)used, sizeof *table),
             *order = mem_alloc((size_t)n_experts, sizeof *order);
    bool *taken = mem_alloc((size_t)n_experts, sizeof *taken);
    int *ranks = mem_alloc((size_t)used, sizeof *ranks),
        rc = table && order && taken && ranks ? 0 : ERR_MEMORY;
    uint64_t state = seed;

    for (int l = 0; l < n_layers && rc == 0; l++) {
        shuffle(order, n_experts, &state);
        for (int p = 0; p < period; p++) {
            for (int i = 0; i < used; i++)
                ranks[i] = i;
            if (kind != ROUTING_SINGLE)
                draw_ranks(kind, n_experts, used, &state, taken, ranks);
            for (int i = 0; i < used; i++)
                table[(size_t)(l * period + p) * (size_t)used + (size_t)i] = order[ranks[i]];
        }
    }
    mem_free(order);
    mem_free(taken);
    mem_free(ranks);
    if (rc < 0)
        mem_free(table);
    *out = (struct imposed_routing){.period = rc < 0 ? 0 : period,
                                    .experts = rc < 0 ? NULL : table};
    return rc < 0 ? error_set(e, rc, "out of memory for the routing") : 0;
}

void bench_routing_release(struct imposed_routing *r)
{
    mem_free((void *)(uintptr_t)r->experts);
    *r = (struct imposed_routing){0};
}
