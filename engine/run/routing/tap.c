/* The engine's side of struct routing_hooks: what every pass hands out, and what it takes. Engine
 * thread; the buffers are allocated at open. */
#include "engine/base/mem.h"
#include "engine/run/internal.h"

static size_t cells_of(const struct engine *g, int per_row)
{
    return (size_t)g->model->hp.n_layers * (size_t)g->forward.max_rows * (size_t)per_row;
}

int routing_tap_open(struct engine *g, struct error *e)
{
    const struct routing_hooks *h = g->config.routing;
    const struct hparams *hp = &g->model->hp;
    struct routing_tap *t = &g->routing;
    bool failed = false;

    if (!h)
        return 0;
    if (h->scores && hp->n_experts)
        failed = !(t->scores = mem_alloc(cells_of(g, hp->n_experts), sizeof *t->scores));
    if (h->impose && hp->n_experts) {
        t->experts = mem_alloc(cells_of(g, hp->n_experts_used), sizeof *t->experts);
        t->weights = mem_alloc(cells_of(g, hp->n_experts_used), sizeof *t->weights);
        failed = failed || !t->experts || !t->weights;
    }
    if (failed)
        return error_set(e, ERR_MEMORY, "no memory for the routing of %d rows: try a smaller -ub",
                         g->forward.max_rows);
    return h->begin ? h->begin(h->ctx, &g->info, e) : 0;
}

void routing_tap_release(struct engine *g)
{
    mem_free(g->routing.scores);
    mem_free(g->routing.experts);
    mem_free(g->routing.weights);
    g->routing = (struct routing_tap){0};
    g->forward.kept_scores = NULL;
    g->forward.imposed = NULL;
}

/* Measurements of the program's own are neither recorded nor imposed on. */
static bool listens(const struct engine *g)
{
    return g->config.routing && !g->uncounted && g->model->hp.n_experts > 0;
}

int routing_tap_begin(struct engine *g, int n, struct error *e)
{
    const struct routing_hooks *h = g->config.routing;
    struct routing_tap *t = &g->routing;
    size_t used = (size_t)g->model->hp.n_experts_used, row = 0, rows = 0;
    int rc = 0;

    g->forward.kept_scores = listens(g) ? t->scores : NULL;
    if (!t->experts)
        return 0;
    g->forward.imposed = NULL;
    if (!listens(g))
        return 0;
    for (int i = 0; i < n; i++)
        rows += (size_t)g->pass.spans[i].rows;
    for (int i = 0; i < n && rc == 0; row += (size_t)g->pass.spans[i++].rows)
        rc = h->impose(h->ctx, g->pass.parts[i].session, g->pass.spans[i].pos, g->pass.ids[i],
                       g->pass.spans[i].rows, t->experts + row * used, t->weights + row * used,
                       rows * used, e);
    t->imposed = (struct imposed_routing){
        .period = (int)rows, .experts = t->experts, .weights = t->weights, .by_row = true};
    g->forward.imposed = &t->imposed;
    return rc;
}

void routing_tap_rows(struct session *s, const struct routing *from, int first)
{
    struct engine *g = s->engine;
    const struct routing_hooks *h = g->config.routing;
    size_t experts = (size_t)g->model->hp.n_experts, row;
    struct routing r = *from;

    if (!listens(g) || !h->rows || g->routing.failed)
        return;
    row = (size_t)(r.experts - g->forward.experts) / (size_t)r.used + (size_t)first;
    r.rows -= first;
    r.pos += first;
    r.ids += first;
    r.experts += (size_t)(first * r.used);
    r.weights += (size_t)(first * r.used);
    r.scores = g->forward.kept_scores ? g->forward.kept_scores + row * experts : NULL;
    r.score_stride = (size_t)g->forward.rows * experts;
    r.prompt = turn_running(s) ? &s->run.turn->prompt : NULL;
    r.seed = s->sampler.sampling.seed;
    r.imposed = g->forward.imposed != NULL;
    g->routing.failed = h->rows(h->ctx, &r, &g->routing.error);
}

int routing_tap_end(struct engine *g, struct error *e)
{
    int rc = g->routing.failed;

    if (rc < 0) {
        *e = g->routing.error;
        g->routing.failed = 0;
    }
    return rc;
}
