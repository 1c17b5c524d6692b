/* Placement auto: measures a few layers within its allowance, and keeps the verdict. */
#include "engine/base/clock.h"
#include "engine/run/place.h"

#include <stdio.h>
#include <string.h>

/* Computed so far, in the runs before this one too as far as the verdict was not decided. */
static uint64_t computed_ns(const struct engine *g, const struct verdict *v)
{
    return g->computed_ns - g->computed_kept_ns + (v ? v->computed_ns : 0);
}

bool engine_auto_due(struct engine *g)
{
    const struct verdict *v;
    struct verdict more;

    if (!devices_seek(g, false) || !cost_model_input(g->cost_model)->target)
        return false;
    if (!(v = place_verdict_seek(g)))
        return true;
    if (v->decided)
        return false;
    more = *v;
    more.computed_ns = computed_ns(g, v);
    if (trial_allowance(more.computed_ns, v->spent_ns) > v->spent_ns)
        return true; /* twice the time of all attempts before */
    place_verdict_store(g, &more, NULL);
    return false;
}

struct auto_clock {
    struct engine *g;
    uint64_t (*now)(void *ctx);
    void *ctx;
    uint64_t limit_ns, begun;
};

static uint64_t auto_now(void *ctx)
{
    const struct auto_clock *c = ctx;

    return c->now ? c->now(c->ctx) : clock_now();
}

static int auto_stop(void *ctx)
{
    const struct auto_clock *c = ctx;
    char line[120];

    snprintf(line, sizeof line, "auto: measuring, %.2f of %.2f s (Esc stops it)",
             (double)(auto_now(ctx) - c->begun) * 1e-9, (double)c->limit_ns * 1e-9);
    engine_progress(c->g, line);
    return session_cancelled(c->g->session);
}

/* Costs that nobody has measured are those of auto's samples. */
static void adopt_costs(struct engine *g, const struct trial_costs *c)
{
    struct planner_input *in = cost_model_input(g->cost_model), tokens, prompts;

    trial_input(c, in, PHASE_TOKENS, -1, &tokens);
    trial_input(c, in, PHASE_PROMPT, -1, &prompts);
    for (int i = 0; i < c->sides; i++) {
        int d = c->device[i];
        struct planner_device *to = &in->devices[d];
        const struct planner_device *t = &tokens.devices[d], *p = &prompts.devices[d];

        if (c->why[i][0])
            continue;
#define ADOPT(from, name) to->name = to->name > 0 ? to->name : (from)->name
        ADOPT(t, handoff_ns);
        ADOPT(t, attention_ns);
        ADOPT(t, expert_ns);
        ADOPT(t, head_ns);
        ADOPT(p, prompt_attention_ns);
        ADOPT(p, prompt_expert_ns);
#undef ADOPT
    }
}

/* Says which devices failed, and names those measured. */
static void name_sides(struct engine *g, const struct trial_costs *c, char *out, size_t size)
{
    const struct planner_input *in = cost_model_input(g->cost_model);
    size_t at = 0;

    out[0] = 0;
    for (int i = 1; i < c->sides; i++) {
        const char *name = in->devices[c->device[i]].name;

        if (c->why[i][0])
            engine_notice(g, "auto: %s failed while it was measured (%s): decided without it", name,
                          c->why[i]);
        else if (at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", name);
    }
}

int engine_auto(struct engine *g, uint64_t (*now)(void *ctx), void *ctx, struct error *e)
{
    const struct planner_input *in = engine_planner_input(g, true, false, false, e);
    const struct verdict *before = in ? place_verdict_seek(g) : NULL;
    uint64_t spent = before ? before->spent_ns : 0, computed = computed_ns(g, before);
    struct auto_clock clock = {g, now, ctx, trial_allowance(computed, spent), 0};
    struct cost_model_plans plans = place_plans(g);
    struct trial_run run = {.model = g->model,
                            .devices = g->devices,
                            .input = in,
                            .keep = {plans.in_force[0], plans.in_force[1], plans.wanted[0],
                                     plans.wanted[1]},
                            .kv_len = g->session->n_tokens,
                            .max_rows = g->info.ubatch,
                            .limit_ns = clock.limit_ns,
                            .now = auto_now,
                            .stop = auto_stop,
                            .ctx = &clock};
    struct trial_costs costs = {0};
    struct verdict v = {0};
    int rc;

    if (!in)
        return e ? e->code : ERR_DEVICE;
    if (!in->target)
        return 0;
    clock.begun = auto_now(&clock);
    rc = trial_measure(&costs, &run, e);
    place_measured(g, TRIAL_ROWS);
    if (rc == ERR_CANCELLED)
        engine_session_uncancel(g->session);
    if (rc < 0 || (rc = verdict_decide(&v, &costs, in, e)) < 0)
        return rc;
    if (costs.complete)
        adopt_costs(g, &costs);
    name_sides(g, &costs, v.device, sizeof v.device);
    v.spent_ns = spent + costs.ns;
    v.computed_ns = computed;
    return place_verdict_store(g, &v, e);
}
