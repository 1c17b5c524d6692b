/* Blocks that a device gives back: it is slow, out of memory, lost, or sessions fill it. */
#include "engine/run/place.h"

#include <stdio.h>
#include <string.h>

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
    rc = place_want(g, phase, p, e);
    plan_free(p);
    return rc;
}

int place_give_back(struct engine *g, int device, struct error *e)
{
    int layer = g->in_force->n_layers - 1, rc = 0;

    while (layer >= 0 && place_wanted_of(g, PHASE_TOKENS)->attention[layer] != device &&
           place_wanted_of(g, PHASE_PROMPT)->attention[layer] != device)
        layer--;
    if (layer < 0)
        return 0;
    for (int k = 0; k < PLAN_PHASES && rc == 0; k++)
        rc = take_layer(g, (enum plan_phase)k, layer, device, e);
    if (rc < 0)
        return rc;
    while ((rc = place_move(g, (struct residency_budget){0}, e)) == 0)
        ;
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

void place_rename_demoted(struct engine *g)
{
    for (int k = 0; k < PLAN_PHASES; k++) {
        const struct plan *now = k == PHASE_PROMPT ? residency_wanted_prompt(g->residency)
                                                   : residency_wanted(g->residency);
        struct plan *p = (g->demoted & 1 << k) && now ? plan_copy(now) : NULL;

        if (!p)
            continue;
        name_demoted(p);
        place_want(g, (enum plan_phase)k, p, NULL);
        plan_free(p);
    }
    g->demoted = 0;
}

void place_relieve(struct engine *g, int device, struct error *e)
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
            if (!plan_equal(want_now[k], place_wanted_of(g, (enum plan_phase)k)))
                name_demoted(want_now[k]);
            rc = place_want(g, (enum plan_phase)k, want_now[k], e);
        }
        g->spec[k].planner = NULL; /* no strategy puts them there again */
    }
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
        if (plan_uses(place_wanted_of(g, (enum plan_phase)k), device))
            g->demoted |= 1 << k;
    cost_model_lost(g->cost_model, device);
    residency_lost(g->residency, g->in_force, device);
    if (s->health.trouble != TROUBLE_WRONG || !g->config.wrong)
        return;
    snprintf(line, sizeof line, "%s computed wrongly: %s",
             s->info.selector[0] ? s->info.selector : s->ops->name, s->health.why);
    g->config.wrong(g->config.callback_ctx, line);
}
