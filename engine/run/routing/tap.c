/* The engine's side of struct routing_hooks: what every pass hands out, and what it takes. Engine
 * thread; the buffers are allocated at open. */
#include "engine/base/mem.h"
#include "engine/run/internal.h"
#include "engine/run/report/logprobs.h"

#include <math.h>
#include <string.h>

static size_t cells_of(const struct engine *g, int per_row)
{
    return (size_t)g->model->hp.n_layers * (size_t)g->forward.max_rows * (size_t)per_row;
}

int routing_tap_session(struct session *s, struct error *e)
{
    const struct engine *g = s->engine;

    if (!g->routing.logits || s->ahead)
        return 0;
    s->ahead_at = -1;
    s->ahead = mem_alloc((size_t)g->model->hp.n_vocab, sizeof *s->ahead);
    return s->ahead ? 0 : error_set(e, ERR_MEMORY, "no memory for a session's probabilities");
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
    if (h->logprobs && hp->n_experts) {
        t->logits = mem_alloc((size_t)SCORE_ROWS * (size_t)hp->n_vocab, sizeof *t->logits);
        t->logprobs = mem_alloc((size_t)g->forward.max_rows, sizeof *t->logprobs);
        failed = failed || !t->logits || !t->logprobs;
    }
    for (int i = 0; i < g->n_sessions && !failed; i++)
        failed = g->sessions[i] && routing_tap_session(g->sessions[i], e) < 0;
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
    mem_free(g->routing.logits);
    mem_free(g->routing.logprobs);
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

/* Logits of the session's row `row` of the pass that the pass computed anyway; NULL: none. Those of
 * drafted rows may have been changed by a grammar since. */
static const float *computed(const struct session *s, int row, int rows)
{
    const struct pass *p = &s->engine->pass;
    size_t n_vocab = (size_t)s->engine->model->hp.n_vocab;

    for (int i = 0; i < p->n; i++) {
        const struct pass_part *part = &p->parts[i];

        if (part->session != s || !part->logits || part->drafted || part->rows != rows)
            continue;
        if (part->all_logits)
            return part->logits + (size_t)row * n_vocab;
        return row == rows - 1 ? part->logits : NULL;
    }
    return NULL;
}

static float chance(const struct engine *g, const float *logits, int id)
{
    struct logprobs_event l;

    logprobs_of(logits, g->model->hp.n_vocab, id, 0, &l);
    return isfinite(l.logprob) ? fminf(l.logprob, 0) : NAN;
}

/* The probabilities of a session's rows from `first` on, into the tap's logprobs, and the logits by
 * which its next row is judged. at: the first of all rows in the pass. */
static int judge(struct session *s, const struct routing *r, int at, int first, struct error *e)
{
    struct engine *g = s->engine;
    struct routing_tap *t = &g->routing;
    size_t n_vocab = (size_t)g->model->hp.n_vocab;
    int i = first > 0 ? first - 1 : 0, rc;

    if (first == 0)
        t->logprobs[0] = r->pos > 0 && s->ahead_at == r->pos ? chance(g, s->ahead, r->ids[0]) : NAN;
    while (i < r->rows) {
        const float *logits = computed(s, i, r->rows);
        int n = 1;

        if (!logits) {
            n = r->rows - i < SCORE_ROWS ? r->rows - i : SCORE_ROWS;
            if ((rc = forward_head(&g->forward, at + i, n, t->logits, e)) < 0)
                return rc;
            logits = t->logits;
        }
        for (int k = 0; k < n && i + k + 1 < r->rows; k++)
            t->logprobs[i + k + 1] = chance(g, logits + (size_t)k * n_vocab, r->ids[i + k + 1]);
        i += n;
        if (i == r->rows)
            memcpy(s->ahead, logits + (size_t)(n - 1) * n_vocab, n_vocab * sizeof *s->ahead);
    }
    s->ahead_at = r->pos + r->rows;
    return 0;
}

void routing_tap_rows(struct session *s, const struct routing *from, int first)
{
    struct engine *g = s->engine;
    const struct routing_hooks *h = g->config.routing;
    size_t experts = (size_t)g->model->hp.n_experts, row;
    struct routing r = *from;

    if (!listens(g) || !h->rows || g->routing.failed)
        return;
    row = (size_t)(r.experts - g->forward.experts) / (size_t)r.used;
    if (g->routing.logits &&
        (g->routing.failed = judge(s, &r, (int)row, first, &g->routing.error)) < 0)
        return;
    r.logprobs = g->routing.logits ? g->routing.logprobs + first : NULL;
    r.edits = s->edits;
    row += (size_t)first;
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
