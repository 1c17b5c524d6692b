/* One step towards the requested plans: weights, and the rows of a layer's attention. */
#include "engine/run/place.h"

/* A layer's attention changes device when the rows of every session are there. */
static int kv_step_hook(void *ctx, int layer, int device, uint64_t max_bytes, uint64_t *spent,
                        struct error *e)
{
    struct engine *g = ctx;
    int rc = 1;

    /* rows that no device has are recomputed when their session continues */
    for (int n = 0; n < g->n_sessions && rc == 1; n++)
        if (g->sessions[n] && kv_stands(&g->kv, n, g->sessions[n]->n_tokens))
            rc = kv_step(&g->kv, n, layer, device, g->sessions[n]->n_tokens, max_bytes, spent, e);
    return rc;
}

static void kv_dropped_hook(void *ctx, int layer, int device)
{
    struct engine *g = ctx;

    kv_dropped(&g->kv, layer, device);
}

int place_move(struct engine *g, struct residency_budget budget, struct error *e)
{
    const struct residency_kv kv = {.step = kv_step_hook, .dropped = kv_dropped_hook, .ctx = g};
    int rc = residency_step(g->residency, g->in_force, &kv, budget, e);

    forward_placed(&g->forward, g->in_force, g->n_devices);
    return rc;
}

bool place_pending(const struct engine *g)
{
    return g->n_devices > 1 && residency_status(g->residency, g->in_force).pending > 0;
}
