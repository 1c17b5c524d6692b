/* Storage of the telemetry. The arrays are allocated once; copying allocates nothing, so a
 * publication may happen while a token is computed. */
#include "engine/run/report/telemetry.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *telemetry_plan_names(const struct telemetry *t, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", t->plan, t->prompt_plan[0] ? ", prompts " : "", t->prompt_plan);
    return out;
}

int telemetry_init(struct telemetry *t, int n_layers, int n_experts, int n_used)
{
    size_t cells = (size_t)n_layers * (size_t)n_experts, route = (size_t)n_layers * (size_t)n_used;

    assert(n_layers > 0 && n_experts > 0 && n_used > 0);
    memset(t, 0, sizeof *t);
    t->n_layers = n_layers;
    t->n_experts = n_experts;
    t->n_experts_used = n_used;
    t->answer = mem_alloc(cells, sizeof *t->answer);
    t->session = mem_alloc(cells, sizeof *t->session);
    t->now = mem_alloc(cells, sizeof *t->now);
    t->ran_on = mem_alloc(cells, 1);
    t->planned = mem_alloc(cells, 1);
    t->newest = mem_alloc(cells, 1);
    t->here = mem_alloc(cells, 1);
    t->edited = mem_alloc(cells, 1);
    t->routes = mem_alloc(TELEMETRY_ROUTES * (route ? route : 1), sizeof *t->routes);
    if (!t->answer || !t->session || !t->now || !t->ran_on || !t->planned || !t->newest ||
        !t->here || !t->edited || !t->routes) {
        telemetry_release(t);
        return ERR_MEMORY;
    }
    memset(t->ran_on, PLAN_NO_DEVICE, cells);
    memset(t->here, 1, cells);
    return 0;
}

void telemetry_release(struct telemetry *t)
{
    mem_free(t->answer);
    mem_free(t->session);
    mem_free(t->now);
    mem_free(t->ran_on);
    mem_free(t->planned);
    mem_free(t->newest);
    mem_free(t->here);
    mem_free(t->edited);
    mem_free(t->routes);
    memset(t, 0, sizeof *t);
}

void telemetry_copy(struct telemetry *to, const struct telemetry *from)
{
    struct telemetry keep = *to;
    size_t cells = (size_t)from->n_layers * (size_t)from->n_experts;

    assert(to != from && to->answer);
    assert(to->n_layers == from->n_layers && to->n_experts == from->n_experts);
    assert(to->n_experts_used == from->n_experts_used);
    *to = *from;
    to->answer = keep.answer;
    to->session = keep.session;
    to->now = keep.now;
    to->ran_on = keep.ran_on;
    to->planned = keep.planned;
    to->newest = keep.newest;
    to->here = keep.here;
    to->edited = keep.edited;
    to->routes = keep.routes;
    memcpy(to->answer, from->answer, cells * sizeof *to->answer);
    memcpy(to->session, from->session, cells * sizeof *to->session);
    memcpy(to->now, from->now, cells * sizeof *to->now);
    memcpy(to->ran_on, from->ran_on, cells);
    memcpy(to->planned, from->planned, cells);
    memcpy(to->newest, from->newest, cells);
    memcpy(to->here, from->here, cells);
    memcpy(to->edited, from->edited, cells);
    memcpy(to->routes, from->routes,
           TELEMETRY_ROUTES * (size_t)from->n_layers * (size_t)from->n_experts_used *
               sizeof *to->routes);
}
