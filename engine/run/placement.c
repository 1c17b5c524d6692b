/* The engine's side of placement: turns a spec into a plan with the current data, opening devices
 * (devices.c) if needed, and at the safe point moves blocks one step towards the requested plan.
 * Engine thread. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/placement/trial.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <stdio.h>
#include <string.h>

#define STEP_BYTES ((uint64_t)16 << 20)   /* most bytes copied at one safe point of an answer ... */
#define STEP_SHARE 2                      /* ... and at most 1/2 of a token's time */
#define STEP_LEAST 200000ull              /* minimum, else tiny models would move nothing at all */
#define REPLAN_TOKENS 16                  /* between two runs of a re-planning strategy */
#define REPLAN_BYTES ((uint64_t)64 << 20) /* most bytes it may move at a time */

/* A split that saves less of a token's, or a prompt's, time may be none: what both sides do at once
 * slows each down */
#define DOUBT 0.1
#define DOUBT_PROMPT 0.03
#define LEARNT 16 /* jobs from which their own times replace those that were measured before */
#define LEARNT_ROWS 256 /* likewise, rows of prompts */
#define REBALANCE 128   /* rows after which balanced decides again; then twice as many, and so on */

static bool wants_device(const char *spec)
{
    return strcmp(spec, "cpu") != 0 && strcmp(spec, "auto") != 0;
}

/* Per block, without the fixed cost of its job, which planners count separately. */
static double block_ns(const struct job_cost *c, double handoff_ns)
{
    double ns = job_cost_typical(c), work = ns - handoff_ns * (double)c->jobs / (double)c->blocks;

    return work > 0.1 * ns ? work : 0.1 * ns;
}

/* The plan requested for a phase. */
static const struct plan *wanted_of(const struct engine *g, enum plan_phase phase)
{
    const struct plan *prompts = residency_wanted_prompt(g->residency);

    return phase == PHASE_PROMPT && prompts ? prompts : residency_wanted(g->residency);
}

const struct plan *place_of_phase(const struct engine *g, enum plan_phase phase)
{
    return phase == PHASE_PROMPT ? residency_prompt(g->residency, g->in_force) : g->in_force;
}

bool place_apart(const struct engine *g)
{
    const struct plan *prompts = place_of_phase(g, PHASE_PROMPT);

    return prompts != g->in_force && !plan_equal(prompts, g->in_force);
}

static bool is_balanced(const struct planner_spec *s)
{
    return s->planner && strcmp(s->planner->name, "balanced") == 0;
}

enum plan_phase place_phase_of(const struct engine *g, enum plan_phase phase, int rows)
{
    return phase == PHASE_PROMPT && g->auto_prompts && is_balanced(&g->spec[PHASE_PROMPT]) &&
                   rows < PLANNER_OVERLAP
               ? PHASE_TOKENS
               : phase;
}

static struct cost_model_plans plans_of(const struct engine *g)
{
    return (struct cost_model_plans){.in_force = {g->in_force, place_of_phase(g, PHASE_PROMPT)},
                                     .wanted = {residency_wanted(g->residency),
                                                residency_wanted_prompt(g->residency)}};
}

static void fill_input(struct engine *g, enum plan_phase phase, struct planner_input *in)
{
    int cells = g->t.n_layers * g->t.n_experts;

    for (int i = 0; i < cells; i++) {
        g->usage[i] = g->t.session[i];
        g->recent[i] = (double)g->t.now[i];
    }
    cost_model_verdict(g->cost_model, phase);
    in->usage = g->profile ? g->profile : g->usage;
    in->recent = g->recent;
    in->current = wanted_of(g, phase);
    in->prompt_rows = phase == PHASE_PROMPT ? g->info.ubatch : 0;
    in->doubt = phase == PHASE_PROMPT ? DOUBT_PROMPT : DOUBT;
    in->move_bytes = g->spec[phase].planner && g->spec[phase].planner->replans ? REPLAN_BYTES : 0;
    for (int d = 0; d < g->n_devices && d < PLANNER_DEVICES; d++) {
        struct device_slot *s = &g->slots[d];

        if (s->handoff.jobs >= LEARNT) {
            in->devices[d].handoff_ns = job_cost_typical(&s->handoff);
            in->devices[d].launch_ns = job_cost_typical(&s->launch);
        }
        if (s->prompt_attention.blocks >= LEARNT_ROWS)
            in->devices[d].prompt_attention_ns = job_cost_typical(&s->prompt_attention);
        if (s->prompt_expert.blocks >= LEARNT_ROWS)
            in->devices[d].prompt_expert_ns = job_cost_typical(&s->prompt_expert);
        s->planned_attention = in->devices[d].prompt_attention_ns;
        s->planned_expert = in->devices[d].prompt_expert_ns;
        if (s->attention.blocks)
            in->devices[d].attention_ns = block_ns(&s->attention, in->devices[d].handoff_ns);
        if (s->expert.blocks)
            in->devices[d].expert_ns = block_ns(&s->expert, in->devices[d].handoff_ns);
        if (s->head.blocks)
            in->devices[d].head_ns = block_ns(&s->head, in->devices[d].handoff_ns);
    }
}

/* Whether the costs of each kind of block are known on the devices that the plan has it on. */
static bool costs_known(const struct planner_input *in, const struct plan *p)
{
    bool attention[PLANNER_DEVICES] = {0}, experts[PLANNER_DEVICES] = {0}, known = true;

    for (int l = 0; l < in->n_layers; l++) {
        attention[p->attention[l]] |= in->attention_bytes[l] > 0;
        for (int x = 0; x < in->n_experts; x++)
            experts[plan_expert(p, l, x)] |= planner_has_expert(in, l, x);
    }
    for (int d = 0; d < in->n_devices; d++) {
        const struct planner_device *v = &in->devices[d];

        known = known &&
                (!attention[d] || (in->prompt_rows ? v->prompt_attention_ns : v->attention_ns) > 0);
        known = known &&
                (!experts[d] || (in->prompt_rows ? v->prompt_expert_ns : v->expert_ns) > 0);
    }
    return known && in->devices[p->head].head_ns > 0;
}

void place_expect(struct engine *g, enum plan_phase phase, double *tok_s)
{
    struct planner_input *in = cost_model_input(g->cost_model);
    const struct plan *p = wanted_of(g, phase);
    double ns;

    fill_input(g, phase, in);
    if (!costs_known(in, p))
        return;
    ns = planner_token_ns(in, p);
    *tok_s = ns > 0 ? 1e9 * (in->prompt_rows ? in->prompt_rows : 1) / ns : 0;
}

double engine_expected(struct engine *g, enum plan_phase phase)
{
    double tok_s = 0;

    place_expect(g, phase, &tok_s);
    return tok_s;
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

/* Requests a plan for a phase (NULL: the prompts have the tokens'), unless both together are too
 * much for a device. */
static int want(struct engine *g, enum plan_phase phase, const struct plan *p, struct error *e)
{
    const struct plan *prompts = phase == PHASE_PROMPT ? p : residency_wanted_prompt(g->residency),
                      *tokens = phase == PHASE_TOKENS ? p : residency_wanted(g->residency);
    int rc = prompts ? planner_check_both(cost_model_input(g->cost_model), tokens, prompts, e) : 0;

    if (rc < 0)
        return rc;
    return phase == PHASE_PROMPT ? residency_want_prompt(g->residency, p, g->in_force, e)
                                 : residency_want(g->residency, p, e);
}

static int run_planner(struct engine *g, const struct planner_spec *spec, enum plan_phase phase,
                       bool tell, struct error *e)
{
    struct planner_input *in = cost_model_input(g->cost_model);
    char note[PLANNER_NOTE] = "";
    struct plan *p = NULL;
    int rc;

    fill_input(g, phase, in);
    if ((rc = planner_run(spec, in, &p, note, e)) < 0)
        return rc;
    if (note[0] && tell && !g->why_told) /* the reason was already reported */
        engine_notice(g, "%s", note);
    g->why_told = false;
    if (tell || !plan_equal(p, wanted_of(g, phase)))
        rc = want(g, phase, p, e);
    plan_free(p);
    if (rc == ERR_USAGE && !tell) /* with the other phase's plan too much: the last one stays */
        rc = 0;
    return rc;
}

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

/* What jobs cost in the runs before, of devices added since the last call. */
static void costs_load(struct engine *g)
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
    return s->handoff.jobs >= LEARNT || s->prompt_attention.blocks >= LEARNT_ROWS ||
           s->prompt_expert.blocks >= LEARNT_ROWS;
}

/* For the next run. A cache that cannot be written is none: it measures again. */
static void costs_store(struct engine *g)
{
    struct planner_input *in = g->cost_model ? cost_model_input(g->cost_model) : NULL;
    struct verdict_keys k;

    if (!in || g->n_devices < 2)
        return;
    fill_input(g, PHASE_TOKENS, in);
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

/* The verdict of this run, or a stored one; NULL: none. */
static const struct verdict *verdict_seek(struct engine *g)
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

/* A measurement wrote up to `most` rows behind those of the chat. */
static void measured(struct engine *g, int most)
{
    kv_measured(&g->kv, g->session->n_tokens, most < g->info.ubatch ? most : g->info.ubatch);
}

/* What a spec needs before it can become a plan: devices, auto's verdict, balanced's costs. 1:
 * ready; 0: not yet, call again at the next safe point. */
static int place_ready(struct engine *g, const char *text, struct error *e)
{
    bool balanced = strncmp(text, "balanced", 8) == 0;
    struct cost_model_plans plans = plans_of(g);
    int rc;

    if (wants_device(text)) {
        if (!devices_seek(g, true))
            return 0;
    } else if (strcmp(text, "auto") == 0) {
        if (!devices_seek(g, false))
            return 0;
        const struct verdict *v = verdict_seek(g);

        for (int k = 0; k < PLAN_PHASES && v; k++) /* searched by costs: this run's, or kept */
            balanced |= strncmp(v->spec[k], "balanced", 8) == 0;
    }
    if (!balanced || g->n_devices < 2) {
        cost_model_measure_stop(g->cost_model);
        return 1;
    }
    costs_load(g);
    rc = cost_model_measure_step(g->cost_model, g->devices, g->n_devices, g->session->n_tokens,
                                 &plans, g->busy ? step_ns(g) : 0, e);
    measured(g, COST_MODEL_ROWS);
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
    int rc = want(g, PHASE_PROMPT, NULL, e);

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
    if (!is_balanced(spec) || g->n_devices < 2 || g->info.ubatch < PLANNER_OVERLAP)
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
    const struct plan *now = wanted_of(g, phase);
    char note[PLANNER_NOTE];
    struct plan *p;
    int rc;

    fill_input(g, phase, in);
    if ((rc = planner_run(&g->spec[phase], in, &p, note, e)) < 0)
        return rc;
    if (planner_token_ns(in, p) < (1 - in->doubt) * planner_token_ns(in, now) &&
        (rc = want(g, phase, p, e)) == ERR_USAGE)
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

        if (g->n_devices < 2 || !is_balanced(&g->spec[k]) || rows < g->rebalance_at[k])
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
    fill_input(g, phase, in);
    if ((rc = planner_check(in, p, e)) < 0 || (rc = want(g, phase, p, e)) < 0)
        return rc;
    g->spec[phase].planner = NULL;
    plan_chosen(g);
    if (phase == PHASE_TOKENS)
        return auto_prompts_end(g, e);
    g->auto_prompts = false;
    return 0;
}

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

/* Moves the attention of a layer to the CPU in the plan requested for a phase, if it is there. */
static int take_layer(struct engine *g, enum plan_phase phase, int layer, int device,
                      struct error *e)
{
    const struct plan *wanted = phase == PHASE_PROMPT ? residency_wanted_prompt(g->residency)
                                                      : residency_wanted(g->residency);
    struct plan *p;
    int rc;

    if (!wanted || wanted->attention[layer] != device)
        return 0;
    if (!(p = plan_copy(wanted)))
        return error_set(e, ERR_MEMORY, "no memory for a plan");
    p->attention[layer] = 0;
    rc = want(g, phase, p, e);
    plan_free(p);
    return rc;
}

int place_give_back(struct engine *g, int device, struct error *e)
{
    const struct residency_kv kv = {.step = kv_step_hook, .dropped = kv_dropped_hook, .ctx = g};
    int layer = g->in_force->n_layers - 1, rc = 0;

    while (layer >= 0 && wanted_of(g, PHASE_TOKENS)->attention[layer] != device &&
           wanted_of(g, PHASE_PROMPT)->attention[layer] != device)
        layer--;
    if (layer < 0)
        return 0;
    for (int k = 0; k < PLAN_PHASES && rc == 0; k++)
        rc = take_layer(g, (enum plan_phase)k, layer, device, e);
    if (rc < 0)
        return rc;
    while ((rc = residency_step(g->residency, g->in_force, &kv, (struct residency_budget){0}, e)) ==
           0)
        ;
    forward_placed(&g->forward, g->in_force, g->n_devices);
    return rc;
}

static uint8_t *place_in(const struct plan *p, struct block_id b)
{
    return b.kind == BLOCK_HEAD        ? (uint8_t *)&p->head
           : b.kind == BLOCK_ATTENTION ? &p->attention[b.layer]
                                       : &p->experts[b.layer * p->n_experts + b.expert];
}

static void set_in(struct plan *p, struct block_id b, uint8_t device, bool streamed)
{
    *place_in(p, b) = device;
    if (b.kind == BLOCK_EXPERT)
        p->streamed[b.layer * p->n_experts + b.expert] = streamed;
}

/* In the plans requested for both phases a block on its way to a device stays where it is; if
 * `may`, one that is there goes to the CPU: returns whether it does. */
static bool take_block(struct engine *g, int device, struct block_id b, struct plan *const *want,
                       bool may)
{
    bool there = false;

    for (int k = 0; k < PLAN_PHASES; k++) {
        const struct plan *now = place_of_phase(g, (enum plan_phase)k);

        if (!want[k] || *place_in(want[k], b) != device)
            continue;
        if (*place_in(now, b) == device)
            there = true;
        else
            set_in(want[k], b, *place_in(now, b),
                   b.kind == BLOCK_EXPERT && now->streamed[b.layer * now->n_experts + b.expert]);
    }
    for (int k = 0; k < PLAN_PHASES && there && may; k++)
        if (want[k] && *place_in(want[k], b) == device)
            set_in(want[k], b, 0, false);
    return there && may;
}

/* n blocks of a device, layer by layer, each layer's experts before its mixer, the head last. */
static int take_blocks(struct engine *g, int device, int n, struct plan *const *want)
{
    const struct hparams *hp = &g->model->hp;
    int taken = 0;

    for (int l = 0; l <= hp->n_layers; l++) {
        int experts = l < hp->n_layers ? shape_experts(hparams_layer(hp, l)) : 0;

        for (int x = 0; x <= experts; x++) {
            struct block_id b = {l == hp->n_layers ? BLOCK_HEAD
                                 : x < experts     ? BLOCK_EXPERT
                                                   : BLOCK_ATTENTION,
                                 l < hp->n_layers ? l : 0, x < experts ? x : 0};

            taken += take_block(g, device, b, want, taken < n);
        }
    }
    return taken;
}

/* The name says what computes now, not what was asked for. */
static void name_demoted(struct plan *p)
{
    static const char part[] = ", part on the CPU";
    char *end = strstr(p->name, part), was[PLAN_NAME];

    if (strncmp(p->name, "cpu", 3) == 0)
        return;
    if (end)
        *end = 0;
    snprintf(was, sizeof was, "%s", p->name);
    if (plan_uses_devices(p))
        snprintf(p->name, sizeof p->name, "%.40s%s", was, part);
    else
        snprintf(p->name, sizeof p->name, "cpu (was %.40s)", was);
}

/* A device was lost: the requested plans are without it already. */
static void rename_demoted(struct engine *g)
{
    for (int k = 0; k < PLAN_PHASES; k++) {
        const struct plan *now = k == PHASE_PROMPT ? residency_wanted_prompt(g->residency)
                                                   : residency_wanted(g->residency);
        struct plan *p = (g->demoted & 1 << k) && now ? plan_copy(now) : NULL;

        if (!p)
            continue;
        name_demoted(p);
        want(g, (enum plan_phase)k, p, NULL);
        plan_free(p);
    }
    g->demoted = 0;
    metrics_plan(g);
}

/* A device is slow, or its jobs find no memory: some blocks go back to the CPU, at first one, and
 * twice as many each time until it is well. What fits stays. */
static void relieve(struct engine *g, int device, struct error *e)
{
    struct device_slot *s = &g->slots[device];
    const struct plan *prompts = residency_wanted_prompt(g->residency);
    struct plan *want_now[PLAN_PHASES] = {[PHASE_TOKENS] = plan_copy(
                                              residency_wanted(g->residency)),
                                          [PHASE_PROMPT] = prompts ? plan_copy(prompts) : NULL};
    int n = 0, rc = 0;

    s->strained = false;
    if (want_now[PHASE_TOKENS])
        n = take_blocks(g, device, 1 << (s->strains < 16 ? s->strains : 16), want_now);
    for (int k = 0; k < PLAN_PHASES && rc >= 0; k++) {
        if (want_now[k]) {
            if (!plan_equal(want_now[k], wanted_of(g, (enum plan_phase)k)))
                name_demoted(want_now[k]);
            rc = want(g, (enum plan_phase)k, want_now[k], e);
        }
        g->spec[k].planner = NULL; /* no strategy puts them there again */
    }
    metrics_plan(g);
    if (rc >= 0 && n) {
        s->strains++;
        s->health.returned += n;
        engine_notice(g,
                      "%s %s (%s): %d block%s go%s back to the CPU, the rest stays; the answer "
                      "continues",
                      s->info.selector[0] ? s->info.selector : s->ops->name,
                      s->health.trouble == TROUBLE_SLOW ? "has become slow" : "is out of memory",
                      s->health.why, n, n == 1 ? "" : "s", n == 1 ? "es" : "");
    }
    for (int k = 0; k < PLAN_PHASES; k++)
        plan_free(want_now[k]);
}

void place_device_lost(void *ctx, int device)
{
    struct engine *g = ctx;
    const struct device_slot *s = &g->slots[device];
    char line[DEVICE_WHY + 80];

    for (int k = 0; k < PLAN_PHASES; k++)
        if (plan_uses(wanted_of(g, (enum plan_phase)k), device))
            g->demoted |= 1 << k;
    cost_model_lost(g->cost_model, device);
    residency_lost(g->residency, g->in_force, device);
    if (s->health.trouble != TROUBLE_WRONG || !g->config.wrong)
        return;
    snprintf(line, sizeof line, "%s computed wrongly: %s",
             s->info.selector[0] ? s->info.selector : s->ops->name, s->health.why);
    g->config.wrong(g->config.callback_ctx, line);
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

void place_safe_point(struct engine *g)
{
    const struct residency_kv kv = {.step = kv_step_hook, .dropped = kv_dropped_hook, .ctx = g};
    struct residency_budget budget = {.bytes = g->busy ? STEP_BYTES : 0,
                                      .ns = g->busy ? step_ns(g) : 100 * CLOCK_MILLI};
    uint64_t start = clock_now();
    bool waited = place_waits(g);
    struct error e = {0};
    int rc = apply_wanted(g, &e);

    for (int d = 1; d < g->n_devices && rc >= 0; d++)
        if (g->slots[d].strained && !g->slots[d].lost)
            relieve(g, d, &e);
    if (g->demoted)
        rename_demoted(g);
    memory_pressure_check(g);
    waited |= place_waits(g);
    if (rc < 0) {
        engine_notice(g, "%s", e.text);
        g->announced = false; /* the reply to the request is the unchanged plan */
    }
    rc = 0;
    if (g->n_devices > 1 || !g->announced) {
        rc = residency_step(g->residency, g->in_force, &kv, budget, &e);
        forward_placed(&g->forward, g->in_force, g->n_devices);
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

bool place_pending(const struct engine *g)
{
    return g->n_devices > 1 && residency_status(g->residency, g->in_force).pending > 0;
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
    costs_store(g);
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

const struct plan *engine_plan(const struct engine *g)
{
    return residency_wanted(g->residency);
}

const struct plan *engine_prompt_plan(const struct engine *g)
{
    return residency_wanted_prompt(g->residency);
}

const struct planner_input *engine_planner_input(struct engine *g, bool open_devices, bool named,
                                                 bool measure, struct error *e)
{
    struct planner_input *in = cost_model_input(g->cost_model);
    struct cost_model_plans plans;

    if (open_devices)
        devices_seek(g, named);
    plans = plans_of(g);
    if (measure && g->n_devices > 1) {
        int rc = cost_model_measure(g->cost_model, g->devices, g->n_devices, g->session->n_tokens,
                                    &plans, e);

        measured(g, COST_MODEL_ROWS);
        if (rc < 0)
            return NULL;
    }
    verdict_seek(g);
    fill_input(g, PHASE_TOKENS, in);
    return in;
}

/* Computed so far, in the runs before this one too as far as the verdict was not decided. */
static uint64_t computed_ns(const struct engine *g, const struct verdict *v)
{
    return g->computed_ns - g->computed_kept_ns + (v ? v->computed_ns : 0);
}

static int verdict_store(struct engine *g, const struct verdict *v, struct error *e)
{
    struct verdict_keys k;
    int rc;

    keys_of_all(g, &k);
    rc = cost_model_verdict_store(g->cost_model, g->config.cache_dir, g->devices, &k, v, e);
    g->computed_kept_ns = g->computed_ns;
    g->t.verdict = *cost_model_verdict(g->cost_model, PHASE_TOKENS);
    return rc;
}

bool engine_auto_due(struct engine *g)
{
    const struct verdict *v;
    struct verdict more;

    if (!devices_seek(g, false) || !cost_model_input(g->cost_model)->target)
        return false;
    if (!(v = verdict_seek(g)))
        return true;
    if (v->decided)
        return false;
    more = *v;
    more.computed_ns = computed_ns(g, v);
    if (trial_allowance(more.computed_ns, v->spent_ns) > v->spent_ns)
        return true; /* twice the time of all attempts before */
    verdict_store(g, &more, NULL);
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
    const struct verdict *before = in ? verdict_seek(g) : NULL;
    uint64_t spent = before ? before->spent_ns : 0, computed = computed_ns(g, before);
    struct auto_clock clock = {g, now, ctx, trial_allowance(computed, spent), 0};
    struct cost_model_plans plans = plans_of(g);
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
    measured(g, TRIAL_ROWS);
    if (rc == ERR_CANCELLED)
        engine_session_uncancel(g->session);
    if (rc < 0 || (rc = verdict_decide(&v, &costs, in, e)) < 0)
        return rc;
    if (costs.complete)
        adopt_costs(g, &costs);
    name_sides(g, &costs, v.device, sizeof v.device);
    v.spent_ns = spent + costs.ns;
    v.computed_ns = computed;
    return verdict_store(g, &v, e);
}

void engine_bandwidth_set(struct engine *g, enum bandwidth_mode mode, double bytes_per_second)
{
    bandwidth_init(g->bandwidth, mode, bytes_per_second);
}

struct bandwidth *engine_bandwidth(struct engine *g)
{
    return g->bandwidth;
}
