/* Costs of jobs and auto's verdict, kept from run to run. */
#include "engine/run/place.h"

#include <stdio.h>
#include <string.h>

/* What a device's verdict and costs depend on, each a line of text. */
static void keys_of(const struct engine *g, int device, struct verdict_keys *k)
{
    const struct device_base *cpu = (const struct device_base *)g->devices[0];

    snprintf(k->driver, sizeof k->driver, "%s", g->slots[device].info.driver);
    snprintf(k->machine, sizeof k->machine, "%s, %d threads", cpu->info.name, g->info.n_threads);
    for (char *c = k->driver; *c; c++)
        *c = (char)(*c == '\n' ? ' ' : *c);
    for (char *c = k->machine; *c; c++)
        *c = (char)(*c == '\n' ? ' ' : *c);
}

void place_costs_load(struct engine *g)
{
    for (int d = g->costs_sought + 1; d < g->n_devices; d++) {
        struct verdict_keys k;

        keys_of(g, d, &k);
        cost_model_costs_load(g->cost_model, d, g->config.cache_dir, g->slots[d].device, &k);
        g->costs_sought = d;
    }
}

/* Whether jobs of this run have told what they cost there. */
static bool has_learnt(const struct device_slot *s)
{
    return s->handoff.jobs >= PLACE_LEARNT || s->prompt_attention.blocks >= PLACE_LEARNT_ROWS ||
           s->prompt_expert.blocks >= PLACE_LEARNT_ROWS;
}

void place_costs_store(struct engine *g)
{
    struct planner_input *in = g->cost_model ? cost_model_input(g->cost_model) : NULL;
    struct verdict_keys k;

    if (!in || g->n_devices < 2)
        return;
    place_input(g, PHASE_TOKENS, in);
    for (int d = 1; d < g->n_devices && d < in->n_devices; d++)
        if (!g->slots[d].lost && has_learnt(&g->slots[d])) {
            keys_of(g, d, &k);
            cost_model_costs_store(g->cost_model, d, g->config.cache_dir, g->slots[d].device, &k,
                                   NULL);
        }
}

/* The verdict's: it depends on all devices. */
static void keys_of_all(const struct engine *g, struct verdict_keys *k)
{
    size_t at;

    keys_of(g, cost_model_input(g->cost_model)->target, k);
    at = strlen(k->driver);
    for (int d = 1; d < g->n_devices && at < sizeof k->driver; d++) {
        struct verdict_keys one;

        if (d == cost_model_input(g->cost_model)->target)
            continue;
        keys_of(g, d, &one);
        at += (size_t)snprintf(k->driver + at, sizeof k->driver - at, ", %s", one.driver);
    }
}

const struct verdict *place_verdict_seek(struct engine *g)
{
    int target = cost_model_input(g->cost_model)->target;
    const struct verdict *v = cost_model_verdict(g->cost_model, PHASE_TOKENS);
    char why[VERDICT_LINE] = "";
    struct verdict_keys k;

    if (v || !target)
        return v;
    keys_of_all(g, &k);
    cost_model_verdict_load(g->cost_model, g->config.cache_dir, g->devices, &k, why);
    if (why[0] && !g->void_told)
        engine_notice(g, "%s: what was measured before is void", why);
    g->void_told |= why[0] != 0;
    if ((v = cost_model_verdict(g->cost_model, PHASE_TOKENS)))
        g->t.verdict = *v;
    return v;
}

int place_verdict_store(struct engine *g, const struct verdict *v, struct error *e)
{
    struct verdict_keys k;
    int rc;

    keys_of_all(g, &k);
    rc = cost_model_verdict_store(g->cost_model, g->config.cache_dir, g->devices, &k, v, e);
    g->computed_kept_ns = g->computed_ns;
    g->t.verdict = *cost_model_verdict(g->cost_model, PHASE_TOKENS);
    return rc;
}
