/* The router's launches. */
#include "gpu/jobs.h"

/* Of the kernels in routing.cl, by the same names there. */
enum {
    ROUTE_TILES = 1,
    ROUTE_SOFTMAX = 2,
    ROUTE_NORMALISED = 4,
    ROUTE_SCORE_BIAS = 8,
    ROUTE_SIGMOID = 16,
    ROUTE_CHOICE_BIAS = 32,
    ROUTE_SHARED = 64,
    ROUTE_SHARED_GATE = 128,
    ROUTE_SHARED_APART = 256,
    ROUTE_EXPERT_SCALE = 512,
    ROUTE_DENSE = 1024,
};

static int route_flags(const struct device *d, int layer, const struct routing *w, bool tiles)
{
    const struct ffn_shape *s = &jobs_shape(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    int flags = (tiles ? ROUTE_TILES : 0) | (r->kind == ROUTER_SOFTMAX ? ROUTE_SOFTMAX : 0) |
                (r->kind == ROUTER_SIGMOID ? ROUTE_SIGMOID : 0) |
                (r->normalised ? ROUTE_NORMALISED : 0) | (w->score_bias ? ROUTE_SCORE_BIAS : 0) |
                (w->choice_bias ? ROUTE_CHOICE_BIAS : 0) |
                (w->expert_scale ? ROUTE_EXPERT_SCALE : 0);

    if (!s->shared)
        return flags;
    return flags | ROUTE_SHARED | (s->shared_gate == SHARED_SIGMOID ? ROUTE_SHARED_GATE : 0) |
           (joined_shared(d, layer) ? 0 : ROUTE_SHARED_APART);
}

/* Of experts; 0: they are chosen from all. */
static int route_groups(const struct router_shape *r)
{
    return r->groups > 1 ? r->groups : 0;
}

/* Work-groups of the router: four for each sixteen scores, the shared expert's gate among them. */
static size_t route_work(const struct ffn_shape *s)
{
    int scores = s->experts + (s->shared && s->shared_gate == SHARED_SIGMOID);

    return 4 * (jobs_up((size_t)scores, 16) / 16);
}

static double route_factor(const struct router_shape *r)
{
    return r->factor != 0.0f ? (double)r->factor : 1.0;
}

int jobs_route(struct device *d, int layer, const struct routing *w, cl_mem from, int rows,
               int base, bool tiles, struct error *e)
{
    const struct ffn_shape *s = &jobs_shape(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    size_t items = (size_t)d->route_items, groups = d->wide ? 1 : route_work(s);

    if (launch_args(d, d->core[CORE_ROUTE], 0, e, "mmmmmmmmmmmiiiiiffffiiii", from, w->router,
                    w->score_bias, w->choice_bias, w->expert_scale, d->scores, d->arrivals,
                    d->all_chosen, d->all_weights, d->tiles, d->entries, base,
                    d->base.config.model->hp.hidden, s->experts, d->padded_experts, s->used,
                    (double)r->jitter, (double)r->floor, route_factor(r),
                    (double)shape_shared_factor(s), route_flags(d, layer, w, tiles),
                    route_groups(r), r->groups_used, d->base.config.model->hp.n_experts_used) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_ROUTE, "route", groups * items, (size_t)rows, 1, items, e);
}

int jobs_token_route(struct device *d, int layer, const struct norm_rows *n,
                     const struct routing *w, int base, bool tiles, struct error *e)
{
    const struct norms_shape *norms = &jobs_shape(d, layer)->norms;
    const struct ffn_shape *s = &jobs_shape(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    size_t items = (size_t)d->route_items, groups = route_work(s) + 4;
    int hidden = d->base.config.model->hp.hidden;

    if (launch_args(d, d->core[CORE_TOKEN_ROUTE], 0, e, "mmmmmmmmmmmmmmmmmffiiiiiiffffiiii", n->x,
                    n->w, n->b, n->h, d->hq.q, d->hq.d, d->hq.s, w->router, w->score_bias,
                    w->choice_bias, w->expert_scale, d->scores, d->arrivals, d->all_chosen,
                    d->all_weights, d->tiles, d->entries, (double)(1.0f / (float)hidden),
                    (double)norms->eps, jobs_norm_flags(norms, n), base, hidden, s->experts,
                    d->padded_experts, s->used, (double)r->jitter, (double)r->floor,
                    route_factor(r), (double)shape_shared_factor(s),
                    route_flags(d, layer, w, tiles), route_groups(r), r->groups_used,
                    d->base.config.model->hp.n_experts_used) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_TOKEN_ROUTE, "token_route", groups * items, 1, 1, items, e);
}

int jobs_token_output(struct device *d, int layer, const struct part *o, const struct norm_rows *n,
                      const struct routing *w, int base, bool tiles, int first, struct error *e)
{
    const struct norms_shape *norms = &jobs_shape(d, layer)->norms;
    const struct ffn_shape *s = &jobs_shape(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    struct kernel *k = d->type[o->m->type].token_output;
    size_t items = kernel_set_token_items(d, o->m->type, TOKEN_OUTPUT),
           step = kernel_set_token_rows(d, o->m->type, TOKEN_OUTPUT),
           groups = jobs_up((size_t)o->m->rows, step) / step;
    bool dense = s->kind == FFN_DENSE;

    if (launch_args(d, k, 0, e, "mmmmmmmmmmmmmmmmmmmmmiiiiffiiiiiffffiiii", d->oq.q, d->oq.d,
                    d->oq.s, o->mem, o->bias, n->x, d->arrivals, n->w, n->b, n->h, d->hq.q, d->hq.d,
                    d->hq.s, w->router, w->score_bias, w->choice_bias, w->expert_scale,
                    d->all_chosen, d->all_weights, d->tiles, d->entries, first, o->m->cols,
                    o->m->rows, o->bias ? 1 : 0, (double)(1.0f / (float)o->m->rows),
                    (double)norms->eps, jobs_norm_flags(norms, n), base, s->experts,
                    d->padded_experts, s->used, (double)r->jitter, (double)r->floor,
                    route_factor(r), (double)shape_shared_factor(s),
                    dense ? ROUTE_DENSE : route_flags(d, layer, w, tiles), route_groups(r),
                    r->groups_used, d->base.config.model->hp.n_experts_used) < 0)
        return ERR_DEVICE;
    return launch(d, k, "token_output", 1, (size_t[]){groups * items}, (size_t[]){items}, e);
}

int jobs_choose_dense(struct device *d, int layer, int rows, int base, struct error *e)
{
    int stride = d->base.config.model->hp.n_experts_used, n = rows * stride;

    if (launch_args(d, d->core[CORE_DENSE], 0, e, "mmmmiiif", d->all_chosen, d->all_weights,
                    d->tiles, d->entries, base, n, stride,
                    (double)shape_shared_factor(&jobs_shape(d, layer)->ffn)) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_DENSE, "choose_dense", (size_t)n, 1, 1, CORE_ITEMS, e);
}
