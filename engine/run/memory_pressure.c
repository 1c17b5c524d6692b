/* Frees memory when it runs short while the engine runs: by another program, or a lower limit of a
 * control group. Caches that only save time are freed, in this order, until enough is available:
 * pages of rows that no session uses, checkpoints of idle sessions, slots of the expert cache and,
 * while others answer, the rows of idle sessions, least recently answering first: their next turn
 * recomputes the prompt. One line reports it; no answer is affected. When memory is available
 * again, the slots are reallocated. Thread: the engine's, between passes. When tasks stall on
 * memory a good part of the time (PSI), the free memory is misleading: then it counts as short
 * below the threshold at which slots would be reallocated. Polling takes some system calls, so it
 * is done twice a second: memory that is taken faster than that is gone before anything could be
 * freed. */
#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#define LOOK_NS (500 * CLOCK_MILLI)
#define PLENTY 4    /* times the floor: slots are reallocated */
#define STALLED 0.1 /* of the time */
#define FLOOR_LEAST ((uint64_t)48 << 20)
#define FLOOR_MOST ((uint64_t)1 << 30)

static uint64_t floor_of(uint64_t memory)
{
    uint64_t floor = memory / 40;

    return floor < FLOOR_LEAST ? FLOOR_LEAST : floor > FLOOR_MOST ? FLOOR_MOST : floor;
}

uint64_t engine_memory_spare(uint64_t memory)
{
    return 2 * floor_of(memory);
}

static uint64_t give_copies(struct engine *g)
{
    uint64_t freed = 0;

    for (int n = 0; n < g->n_sessions; n++)
        if (g->sessions[n] && g->sessions[n]->checkpoints && !turn_running(g->sessions[n]))
            freed += checkpoints_give_back(g->sessions[n]->checkpoints);
    return freed;
}

/* The session without a turn whose last turn began longest ago; NULL: none holds any rows. */
static struct session *idlest(const struct engine *g)
{
    struct session *best = NULL;

    for (int n = 0; n < g->n_sessions; n++) {
        struct session *s = g->sessions[n];

        if (s && s->n_tokens && !turn_running(s) && s != g->pressure.evaluated &&
            (!best || s->run.start < best->run.start))
            best = s;
    }
    return best;
}

/* Only while others answer: an idle session's rows are needed only by its next turn. */
static uint64_t give_prefixes(struct engine *g, uint64_t wanted)
{
    struct session *s;
    uint64_t freed = 0;

    while (g->n_running > 0 && freed < wanted && (s = idlest(g))) {
        session_rewind(s, 0);
        freed += kv_trim(&g->kv);
    }
    return freed;
}

static void give_back(struct engine *g, uint64_t left, uint64_t wanted)
{
    uint64_t rows = kv_trim(&g->kv), copies = rows < wanted ? give_copies(g) : 0, slots = 0,
             prefixes = 0, all;

    if (rows + copies < wanted && g->model->cache)
        slots = expert_cache_shrink(g->model->cache, wanted - rows - copies);
    g->pressure.given += slots;
    if (rows + copies + slots < wanted)
        prefixes = give_prefixes(g, wanted - rows - copies - slots);
    all = rows + copies + slots + prefixes;
    if (g->pressure.told || !all)
        return;
    g->pressure.told = true;
    engine_notice(g,
                  "memory is short (%.0f MiB left): %.0f MiB go back, %.0f of the expert cache and "
                  "%.0f of copies to go back to, %.0f of ended and %.0f of idle conversations; the "
                  "text stays the same",
                  (double)left / (1 << 20), (double)all / (1 << 20), (double)slots / (1 << 20),
                  (double)copies / (1 << 20), (double)rows / (1 << 20),
                  (double)prefixes / (1 << 20));
}

/* Whether tasks stalled on memory for a good part of the time since the last poll. */
static bool stalled(struct engine *g, uint64_t passed_ns)
{
    uint64_t before = g->pressure.stalled_us, now;

    if (!g->config.memory_stalled)
        return false;
    now = g->config.memory_stalled(g->config.callback_ctx);
    g->pressure.stalled_us = now == UINT64_MAX ? 0 : now;
    return before && now != UINT64_MAX && now > before &&
           (double)(now - before) * 1e3 > STALLED * (double)passed_ns;
}

void memory_pressure_check(struct engine *g)
{
    uint64_t now = clock_now(), floor = floor_of(g->config.memory), left,
             passed = now - g->pressure.looked_ns;
    bool waits;

    if (!g->config.memory_left || passed < LOOK_NS)
        return;
    g->pressure.looked_ns = now;
    left = g->config.memory_left(g->config.callback_ctx);
    waits = stalled(g, passed);
    if (left < floor || (waits && left < PLENTY * floor)) {
        give_back(g, left, left < floor ? 2 * floor - left : floor);
    } else if (left > PLENTY * floor && left != UINT64_MAX) {
        uint64_t room = left - 3 * floor;

        if (g->pressure.given)
            g->pressure.given -= expert_cache_grow(
                g->model->cache, g->pressure.given < room ? g->pressure.given : room);
        g->pressure.told = g->pressure.told && g->pressure.given > 0;
    }
}
