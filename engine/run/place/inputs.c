/* What planners decide from, and what is requested of them: see place.h. */
#include "engine/run/place.h"

#include <string.h>

#define REPLAN_BYTES                                                             \
    ((uint64_t)64 << 20) /* most bytes a re-planning strategy may move at a time \
                          */
/* A split that saves less of a token's, or a prompt's, time may be none: what both sides do at once
 * slows each down */
#define DOUBT 0.1
#define DOUBT_PROMPT 0.03

/* Per block, without the fixed cost of its job, which planners count separately. */
static double block_ns(const struct job_cost *c, double handoff_ns)
{
    double ns = job_cost_typical(c), work = ns - handoff_ns * (double)c->jobs / (double)c->blocks;

    return work > 0.1 * ns ? work : 0.1 * ns;
}

const struct plan *place_wanted_of(const struct engine *g, enum plan_phase phase)
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

bool place_is_balanced(const struct planner_spec *s)
{
    return s->planner && strcmp(s->planner->name, "balanced") == 0;
}

enum plan_phase place_phase_of(const struct engine *g, enum plan_phase phase, int rows)
{
    return phase == PHASE_PROMPT && g->auto_prompts && place_is_balanced(&g->spec[PHASE_PROMPT]) &&
                   rows < PLANNER_OVERLAP
               ? PHASE_TOKENS
               : phase;
}

struct cost_model_plans place_plans(const struct engine *g)
{
    return (struct cost_model_plans){.in_force = {g->in_force, place_of_phase(g, PHASE_PROMPT)},
                                     .wanted = {residency_wanted(g->residency),
                                                residency_wanted_prompt(g->residency)}};
}

void place_input(struct engine *g, enum plan_phase phase, struct planner_input *in)
{
    int cells = g->t.n_layers * g->t.n_experts;

    for (int i = 0; i < cells; i++) {
        g->usage[i] = g->t.session[i];
        g->recent[i] = (double)g->t.now[i];
    }
    cost_model_verdict(g->cost_model, phase);
    in->usage = g->profile ? g->profile : g->usage;
    in->recent = g->recent;
    in->current = place_wanted_of(g, phase);
    in->prompt_rows = phase == PHASE_PROMPT ? g->info.ubatch : 0;
    in->doubt = phase == PHASE_PROMPT ? DOUBT_PROMPT : DOUBT;
    in->move_bytes = g->spec[phase].planner && g->spec[phase].planner->replans ? REPLAN_BYTES : 0;
    for (int d = 0; d < g->n_devices && d < PLANNER_DEVICES; d++) {
        struct device_slot *s = &g->slots[d];

        if (s->handoff.jobs >= PLACE_LEARNT) {
            in->devices[d].handoff_ns = job_cost_typical(&s->handoff);
            in->devices[d].launch_ns = job_cost_typical(&s->launch);
        }
        if (s->prompt_attention.blocks >= PLACE_LEARNT_ROWS)
            in->devices[d].prompt_attention_ns = job_cost_typical(&s->prompt_attention);
        if (s->prompt_expert.blocks >= PLACE_LEARNT_ROWS)
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
    const struct plan *p = place_wanted_of(g, phase);
    double ns;

    place_input(g, phase, in);
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

int place_want(struct engine *g, enum plan_phase phase, const struct plan *p, struct error *e)
{
    const struct plan *prompts = phase == PHASE_PROMPT ? p : residency_wanted_prompt(g->residency),
                      *tokens = phase == PHASE_TOKENS ? p : residency_wanted(g->residency);
    int rc = prompts ? planner_check_both(cost_model_input(g->cost_model), tokens, prompts, e) : 0;

    if (rc < 0)
        return rc;
    return phase == PHASE_PROMPT ? residency_want_prompt(g->residency, p, g->in_force, e)
                                 : residency_want(g->residency, p, e);
}

void place_measured(struct engine *g, int most)
{
    kv_measured(&g->kv, g->session->n_tokens, most < g->info.ubatch ? most : g->info.ubatch);
}

const struct plan *engine_plan(const struct engine *g)
{
    return residency_wanted(g->residency);
}

const struct plan *engine_prompt_plan(const struct engine *g)
{
    return residency_wanted_prompt(g->residency);
}
