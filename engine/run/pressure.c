/* Memory that shrinks while the engine runs: another program takes it, or the limit of a control
 * group falls. What is kept only because it saves time goes back, in this order, until there is
 * room again: pages of rows that no session has any more, copies that idle sessions could go back
 * to, and slots of the expert cache. One line
 * says so; no answer is touched. When memory returns, so do the slots. Thread: the engine's,
 * between passes.
 * Asking costs some system calls, so it is done twice a second: memory that is gone
 * faster than that is gone before anybody could act. */
#include "engine/base/clock.h"
#include "engine/run/internal.h"

#define LOOK_NS (500 * CLOCK_MILLI)
#define FLOOR_LEAST ((uint64_t)48 << 20)
#define FLOOR_MOST ((uint64_t)1 << 30)

/* Less than this is short: a part of what there was at the start. */
static uint64_t floor_of(const struct engine *g)
{
    uint64_t floor = g->config.memory / 40;

    return floor < FLOOR_LEAST ? FLOOR_LEAST : floor > FLOOR_MOST ? FLOOR_MOST : floor;
}

static uint64_t give_copies(struct engine *g)
{
    uint64_t freed = 0;

    for (int n = 0; n < g->n_sessions; n++)
        if (g->sessions[n] && g->sessions[n]->checkpoints && !turn_running(g->sessions[n]))
            freed += checkpoints_give_back(g->sessions[n]->checkpoints);
    return freed;
}

static void give_back(struct engine *g, uint64_t left, uint64_t wanted)
{
    uint64_t rows = kv_trim(&g->kv), copies = rows < wanted ? give_copies(g) : 0, slots = 0;

    if (rows + copies < wanted && g->model->cache)
        slots = expert_cache_shrink(g->model->cache, wanted - rows - copies);
    g->pressure.given += slots;
    if (g->pressure.told || !(rows + copies + slots))
        return;
    g->pressure.told = true;
    engine_notice(g,
                  "memory is short (%.0f MiB left): %.0f MiB go back, %.0f of the expert cache and "
                  "%.0f of copies to go back to, %.0f of ended conversations; the text stays the "
                  "same",
                  (double)left / (1 << 20), (double)(rows + copies + slots) / (1 << 20),
                  (double)slots / (1 << 20), (double)copies / (1 << 20), (double)rows / (1 << 20));
}

void pressure_look(struct engine *g)
{
    uint64_t now = clock_now(), floor = floor_of(g), left;

    if (!g->config.memory_left || now - g->pressure.looked_ns < LOOK_NS)
        return;
    g->pressure.looked_ns = now;
    left = g->config.memory_left(g->config.callback_ctx);
    if (left < floor) {
        give_back(g, left, 2 * floor - left);
    } else if (left > 4 * floor && left != UINT64_MAX) {
        uint64_t room = left - 3 * floor;

        if (g->pressure.given)
            g->pressure.given -= expert_cache_grow(
                g->model->cache, g->pressure.given < room ? g->pressure.given : room);
        g->pressure.told = g->pressure.told && g->pressure.given > 0;
    }
}
