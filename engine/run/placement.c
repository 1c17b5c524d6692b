/* Turns a request into a plan with the current data, opening devices (devices.c) if needed, and
 * at the safe point moves blocks one step towards the requested plan. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/place.h"

#include <stdio.h>
#include <string.h>

#define STEP_BYTES ((uint64_t)16 << 20) /* most bytes copied at one safe point of an answer ... */
#define STEP_SHARE 2                    /* ... and at most 1/2 of a token's time */
#define STEP_LEAST 200000ull            /* minimum, else tiny models would move nothing at all */
#define REPLAN_TOKENS 16                /* between two runs of a re-planning strategy */
#define REBALANCE 128 /* rows after which balanced decides again; then twice as many, and so on */

static bool wants_device(const char *spec)
{
    return strcmp(spec, "cpu") != 0 && strcmp(spec, "auto") != 0;
}

static void plan_chosen(struct engine *g)
{
    g->announced = false;
    utility_forget(&g->utility);
    metrics_plan(g);
    metrics_switched(g);
}

/* Time limit of a safe point during an answer. */
static uint64_t step_ns(const struct engine *g)
{
    uint64_t token_ns = metrics_token_ns(g),
             newest = g->t.recent_count
                          ? 1000ull * g->t.recent_us[(g->t.recent_count - 1) % TELEMETRY_RECENT]
                          : 0;

    /* half-way between two plans tokens may be slow: that must not raise the limit */
    token_ns = newest < token_ns ? newest : token_ns;
    return token_ns / STEP_SHARE > STEP_LEAST ? token_ns / STEP_SHARE : STEP_LEAST;
}

static int run_planner(struct engine *g, const struct planner_spec *spec, enum plan_phase phase,
                       bool tell, struct error *e)
{
    struct planner_input *in = cost_model_input(g->cost_model);
    char note[PLANNER_NOTE] = "";
    struct plan *p = NULL;
    int rc;

    place_input(g, phase, in);
    if ((rc = planner_run(spec, in, &p, note, e)) < 0)
        return rc;
    if (note[0] && tell && !g->why_told) /* the reason was already reported */
        engine_notice(g, "%s", note);
    g->why_told = false;
    if (tell || !plan_equal(p, place_wanted_of(g, phase)))
        rc = place_want(g, phase, p, e);
    plan_free(p);
    if (rc == ERR_USAGE && !tell) /* with the other phase's plan too much: the last one stays */
        rc = 0;
    return rc;
}

/* What a spec needs before it can become a plan: devices, auto's verdict, balanced's costs. 1:
 * ready; 0: not yet, call again at the next safe point. */
static int place_ready(struct engine *g, const char *text, struct error *e)
{
    bool balanced = strncmp(text, "balanced", 8) == 0;
    struct cost_model_plans plans = place_plans(g);
    int rc;

    if (wants_device(text)) {
        if (!devices_seek(g, true))
            return 0;
    } else if (strcmp(text, "auto") == 0) {
        if (!devices_seek(g, false))
            return 0;
        const struct verdict *v = place_verdict_seek(g);

        for (int k = 0; k < PLAN_PHASES && v; k++) /* searched by costs: this run's, or kept */
            balanced |= strncmp(v->spec[k], "balanced", 8) == 0;
    }
    if (!balanced || g->n_devices < 2) {
        cost_model_measure_stop(g->cost_model);
        return 1;
    }
    place_costs_load(g);
    rc = cost_model_measure_step(g->cost_model, g->devices, g->n_devices, g->session->n_tokens,
                                 &plans, g->busy ? step_ns(g) : 0, e);
    place_measured(g, COST_MODEL_ROWS);
    if (rc != ERR_DEVICE)
        return rc;
    /* a device that fails is found out when it computes; the others' costs may be known */
    engine_notice(g, "%s", e->text);
    cost_model_measure_stop(g->cost_model);
    return 1;
}

/* The prompts have the tokens' plan again. */
static int same_now(struct engine *g, struct error *e)
{
    int rc = place_want(g, PHASE_PROMPT, NULL, e);

    g->spec[PHASE_PROMPT].planner = NULL;
    forward_placed(&g->forward, g->in_force, g->n_devices);
    plan_chosen(g);
    return rc;
}

/* The prompts have the tokens' plan again, if it was auto that gave them another. */
static int auto_prompts_end(struct engine *g, struct error *e)
{
    bool had = g->auto_prompts;

    g->auto_prompts = false;
    return had ? same_now(g, e) : 0;
}

/* auto for tokens was applied: decides for prompts too, unless the user gave them a plan. */
static int auto_prompts_begin(struct engine *g, const struct planner_spec *spec, struct error *e)
{
    const struct verdict *v;
    int rc;

    if (residency_wanted_prompt(g->residency) && !g->auto_prompts)
        return 0;
    v = cost_model_verdict(g->cost_model, PHASE_PROMPT);
    if (!v || strcmp(v->spec[PHASE_PROMPT], v->spec[PHASE_TOKENS]) == 0)
        return auto_prompts_end(g, e);
    g->spec[PHASE_PROMPT] = *spec;
    rc = run_planner(g, spec, PHASE_PROMPT, true, e);
    g->auto_prompts = rc == 0;
    return rc;
}

/* A strategy that decides from costs decides for prompts by theirs, unless the user gave them a
 * plan. */
static int own_prompts(struct engine *g, const struct planner_spec *spec, struct error *e)
{
    int rc;

    if (strcmp(spec->text, "auto") == 0)
        return auto_prompts_begin(g, spec, e);
    if (!place_is_balanced(spec) || g->n_devices < 2 || g->info.ubatch < PLANNER_OVERLAP)
        return auto_prompts_end(g, e);
    if (residency_wanted_prompt(g->residency) && !g->auto_prompts)
        return 0;
    g->spec[PHASE_PROMPT] = *spec;
    rc = run_planner(g, spec, PHASE_PROMPT, false, e);
    g->auto_prompts = rc == 0 && residency_wanted_prompt(g->residency);
    return rc;
}

int place_now(struct engine *g, const char *request, struct error *e)
{
    struct planner_spec spec, before;
    enum plan_phase phase;
    int rc;

    if ((rc = planner_parse_request(&spec, &phase, request, e)) < 0)
        return rc;
    if (!spec.planner) {
        g->auto_prompts = false;
        return same_now(g, e);
    }
    if ((rc = place_ready(g, spec.text, e)) != 1)
        return rc < 0 ? rc : 1;
    before = g->spec[phase];
    g->spec[phase] = spec;
    if ((rc = run_planner(g, &spec, phase, true, e)) < 0) {
        g->spec[phase] = before;
        return rc;
    }
    if (phase == PHASE_PROMPT)
        g->auto_prompts = false;
    else
        rc = own_prompts(g, &spec, e);
    if (rc < 0)
        return rc;
    g->replan_at = g->t.session_generated_tokens + REPLAN_TOKENS;
    for (int k = 0; k < PLAN_PHASES; k++)
        g->rebalance_at[k] = g->computed_rows[k] + REBALANCE;
    plan_chosen(g);
    return 0;
}

/* balanced decides again for a phase, by the costs and the use of experts that were learnt since;
 * a plan that would gain less than the model may be wrong by is not worth moving for. */
static int rebalance(struct engine *g, enum plan_phase phase, struct error *e)
{
    struct planner_input *in = cost_model_input(g->cost_model);
    const struct plan *now = place_wanted_of(g, phase);
    char note[PLANNER_NOTE];
    struct plan *p;
    int rc;

    place_input(g, phase, in);
    if ((rc = planner_run(&g->spec[phase], in, &p, note, e)) < 0)
        return rc;
    if (planner_token_ns(in, p) < (1 - in->doubt) * planner_token_ns(in, now) &&
        (rc = place_want(g, phase, p, e)) == ERR_USAGE)
        rc = 0; /* with the other phase's plan too much: the last one stays */
    plan_free(p);
    if (rc >= 0)
        metrics_expect(g);
    return rc;
}

static int rebalance_due(struct engine *g, struct error *e)
{
    int rc = 0;

    for (int k = 0; k < PLAN_PHASES && rc >= 0; k++) {
        uint64_t rows = g->computed_rows[k];

        if (g->n_devices < 2 || !place_is_balanced(&g->spec[k]) || rows < g->rebalance_at[k])
            continue;
        g->rebalance_at[k] = rows + 2 * (rows > REBALANCE ? rows : REBALANCE);
        rc = rebalance(g, (enum plan_phase)k, e);
    }
    return rc;
}

/* Moves blocks of a plan that are on devices this engine does not have to the CPU; returns how
 * many. Likewise those that the model does not have: a rule of a plan file covers all experts of
 * its layers, however many they are. */
static int take_home(const struct engine *g, struct plan *p)
{
    int n = 0;

    for (int l = 0; l < p->n_layers; l++) {
        if (p->attention[l] >= g->n_devices)
            p->attention[l] = 0, n++;
        for (int x = 0; x < p->n_experts; x++) {
            bool here = x < shape_experts(hparams_layer(&g->model->hp, l));

            if (here && plan_expert(p, l, x) < g->n_devices)
                continue;
            p->experts[l * p->n_experts + x] = 0;
            p->streamed[l * p->n_experts + x] = 0;
            n += here;
        }
    }
    if (p->head >= g->n_devices)
        p->head = 0, n++;
    return n;
}

/* 1: its devices are being opened, call again. */
static int set_plan(struct engine *g, struct plan *p, enum plan_phase phase, struct error *e)
{
    struct planner_input *in;
    int rc, home;

    if (plan_diff(place_of_phase(g, phase), p, NULL) && !devices_seek(g, true))
        return 1;
    if ((home = take_home(g, p)))
        engine_notice(g,
                      "plan %s: %d blocks belong on a device that is not here; the CPU runs them",
                      p->name, home);
    in = cost_model_input(g->cost_model);
    place_input(g, phase, in);
    if ((rc = planner_check(in, p, e)) < 0 || (rc = place_want(g, phase, p, e)) < 0)
        return rc;
    g->spec[phase].planner = NULL;
    plan_chosen(g);
    if (phase == PHASE_TOKENS)
        return auto_prompts_end(g, e);
    g->auto_prompts = false;
    return 0;
}

/* The newest request of a phase counts: drops a pending one, also of an answer that is over. */
static void wish_drop(struct engine *g, enum plan_phase phase)
{
    plan_free(g->wanted_plan[phase]);
    g->wanted_plan[phase] = NULL;
    mem_free(g->wanted_spec[phase]);
    g->wanted_spec[phase] = NULL;
}

/* Applies the pending requests, as far as possible by now. */
static int apply_wanted(struct engine *g, struct error *e)
{
    int rc = 0;

    if (g->devices_async)
        devices_async_poll(g, !g->busy);
    if (g->script_at < g->n_script &&
        (int)g->t.session_generated_tokens >= g->script[g->script_at].after) {
        const char *request = g->script[g->script_at++].spec, *rest = request;
        enum plan_phase phase = planner_phase(&rest);

        wish_drop(g, phase);
        g->wanted_spec[phase] = mem_string(request);
    }
    for (int k = 0; k < PLAN_PHASES && rc >= 0; k++) {
        if (g->wanted_plan[k] &&
            (rc = set_plan(g, g->wanted_plan[k], (enum plan_phase)k, e)) != 1) {
            plan_free(g->wanted_plan[k]);
            g->wanted_plan[k] = NULL;
        }
        if (g->wanted_spec[k] && (rc = place_now(g, g->wanted_spec[k], e)) != 1) {
            mem_free(g->wanted_spec[k]);
            g->wanted_spec[k] = NULL;
        }
    }
    if (rc >= 0 && !place_pending(g))
        rc = rebalance_due(g, e);
    if (rc < 0 || g->t.session_generated_tokens < g->replan_at)
        return rc;
    for (int k = 0; k < PLAN_PHASES && rc >= 0; k++)
        if (g->spec[k].planner && g->spec[k].planner->replans) {
            rc = run_planner(g, &g->spec[k], (enum plan_phase)k, false, e);
            g->replan_at = g->t.session_generated_tokens + REPLAN_TOKENS;
        }
    return rc;
}

int engine_place_waits(const struct engine *g)
{
    int waits = 0;

    for (int k = 0; k < PLAN_PHASES; k++)
        waits += g->wanted_spec[k] || g->wanted_plan[k];
    return waits;
}

bool place_waits(const struct engine *g)
{
    return engine_place_waits(g) || g->devices_async || !g->announced || place_pending(g);
}

/* Devices that are strained give back, plans that lost one say so. */
static void demote(struct engine *g, bool relieve)
{
    bool changed = g->demoted != 0;
    struct error e = {0};

    for (int d = 1; d < g->n_devices && relieve; d++)
        if (g->slots[d].strained && !g->slots[d].lost) {
            place_relieve(g, d, &e);
            changed = true;
        }
    if (g->demoted)
        place_rename_demoted(g);
    if (changed)
        metrics_plan(g);
}

void place_safe_point(struct engine *g)
{
    struct residency_budget budget = {.bytes = g->busy ? STEP_BYTES : 0,
                                      .ns = g->busy ? step_ns(g) : 100 * CLOCK_MILLI};
    uint64_t start = clock_now();
    bool waited = place_waits(g);
    struct error e = {0};
    int rc = apply_wanted(g, &e);

    demote(g, rc >= 0);
    memory_pressure_check(g);
    waited |= place_waits(g);
    if (rc < 0) {
        engine_notice(g, "%s", e.text);
        g->announced = false; /* the reply to the request is the unchanged plan */
    }
    rc = 0;
    if (g->n_devices > 1 || !g->announced) {
        rc = place_move(g, budget, &e);
        if (rc < 0)
            engine_notice(g, "%s", e.text);
    }
    if (rc == 1 && !g->announced) {
        char names[TELEMETRY_PLAN_NAMES];
        struct event ev = {.kind = EVENT_PLAN,
                           .text = mem_string(telemetry_plan_names(&g->t, names, sizeof names))};

        g->announced = true;
        engine_emit(g, &ev);
    }
    if (waited && g->busy && g->t.state == ENGINE_DECODE)
        metrics_stall(g, clock_now() - start, place_pending(g));
}

int place_init(struct engine *g, struct error *e)
{
    const struct hparams *hp = &g->model->hp;
    size_t cells = (size_t)hp->n_layers * (size_t)hp->n_experts;
    int rc;

    g->in_force = plan_new("cpu", hp->n_layers, hp->n_experts);
    g->usage = mem_alloc(cells, sizeof *g->usage);
    g->recent = mem_alloc(cells, sizeof *g->recent);
    if (!g->in_force || !g->usage || !g->recent)
        return error_set(e, ERR_MEMORY, "no memory for the placement");
    if ((rc = cost_model_new(&g->cost_model, g->model, &g->state, g->config.sessions, e)) < 0 ||
        (rc = residency_new(&g->residency, g->model, g->devices, DEVICE_MAX, e)) < 0)
        return rc;
    cost_model_device(g->cost_model, 0, g->devices[0]);
    return 0;
}

void place_release(struct engine *g)
{
    devices_async_poll(g, true);
    place_costs_store(g);
    residency_free(g->residency);
    cost_model_free(g->cost_model);
    plan_free(g->in_force);
    for (int k = 0; k < PLAN_PHASES; k++)
        wish_drop(g, (enum plan_phase)k);
    mem_free(g->script);
    mem_free(g->usage);
    mem_free(g->recent);
    mem_free(g->profile);
}

int engine_place(struct engine *g, const char *request, struct error *e)
{
    struct planner_spec parsed;
    enum plan_phase phase;
    char *copy = NULL;
    int rc = planner_parse_request(&parsed, &phase, request, e);

    if (rc >= 0 && !g->busy)
        rc = place_now(g, request, e);
    if (rc >= 0 && g->busy && !(copy = mem_string(request)))
        rc = error_set(e, ERR_MEMORY, "no memory for a placement");
    if (rc < 0) {
        g->announced = false;
        return rc;
    }
    wish_drop(g, phase);
    g->wanted_spec[phase] = copy;
    return rc;
}

static int plan_wished(struct engine *g, struct plan *p, enum plan_phase phase, struct error *e)
{
    int rc;

    if (p->n_layers != g->model->hp.n_layers || p->n_experts != g->model->hp.n_experts) {
        rc = error_set(e, ERR_USAGE,
                       "the plan is for %d layers of %d experts, the model has %d of %d",
                       p->n_layers, p->n_experts, g->model->hp.n_layers, g->model->hp.n_experts);
        g->announced = false;
        plan_free(p);
        return rc;
    }
    if (g->busy) {
        wish_drop(g, phase);
        g->wanted_plan[phase] = p;
        return 0;
    }
    if ((rc = set_plan(g, p, phase, e)) < 0)
        g->announced = false;
    else
        wish_drop(g, phase);
    plan_free(p);
    return rc;
}

int engine_plan_set(struct engine *g, struct plan *p, struct error *e)
{
    return plan_wished(g, p, PHASE_TOKENS, e);
}

int engine_prompt_plan_set(struct engine *g, struct plan *p, struct error *e)
{
    return p ? plan_wished(g, p, PHASE_PROMPT, e) : engine_place(g, "prompt " PLANNER_SAME, e);
}

int engine_profile_set(struct engine *g, const double *counts, struct error *e)
{
    size_t cells = (size_t)g->t.n_layers * (size_t)g->t.n_experts;
    double *copy = counts ? mem_alloc(cells, sizeof *copy) : NULL;

    if (counts && !copy)
        return error_set(e, ERR_MEMORY, "no memory for an expert profile");
    if (counts)
        memcpy(copy, counts, cells * sizeof *copy);
    mem_free(g->profile);
    g->profile = copy;
    return 0;
}

int engine_script_set(struct engine *g, const char *script, struct error *e)
{
    struct planner_step steps[64];
    int n = planner_script_parse(steps, 64, script, e);

    if (n < 0)
        return n;
    mem_free(g->script);
    g->script_at = g->n_script = 0;
    if (!(g->script = mem_alloc((size_t)n, sizeof *g->script)))
        return error_set(e, ERR_MEMORY, "no memory for a placement script");
    memcpy(g->script, steps, (size_t)n * sizeof *steps);
    g->n_script = n;
    /* a script tells in advance what will be needed: open and measure it now, so that its steps are
     * on time */
    for (int i = 0; i < n && !g->busy; i++) {
        const char *spec = steps[i].spec;
        struct error why = {0};

        planner_phase(&spec);
        if (strcmp(spec, PLANNER_SAME) && place_ready(g, spec, &why) < 0)
            engine_notice(g, "%s: %s", steps[i].spec, why.text);
    }
    return 0;
}

const struct planner_input *engine_planner_input(struct engine *g, bool open_devices, bool named,
                                                 bool measure, struct error *e)
{
    struct planner_input *in = cost_model_input(g->cost_model);
    struct cost_model_plans plans;

    if (open_devices)
        devices_seek(g, named);
    plans = place_plans(g);
    if (measure && g->n_devices > 1) {
        int rc = cost_model_measure(g->cost_model, g->devices, g->n_devices, g->session->n_tokens,
                                    &plans, e);

        place_measured(g, COST_MODEL_ROWS);
        if (rc < 0)
            return NULL;
    }
    place_verdict_seek(g);
    place_input(g, PHASE_TOKENS, in);
    return in;
}

void engine_bandwidth_set(struct engine *g, enum bandwidth_mode mode, double bytes_per_second)
{
    bandwidth_init(g->bandwidth, mode, bytes_per_second);
}

struct bandwidth *engine_bandwidth(struct engine *g)
{
    return g->bandwidth;
}
