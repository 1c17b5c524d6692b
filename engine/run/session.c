/* The session: one line of tokens, the KV cache that belongs to it, and the safe point between
 * them. Engine thread. n_tokens counts whole tokens only: it moves when a chunk is done on every
 * layer, so a cancel or a failure in the middle of a pass leaves a consistent session behind. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <string.h>

#define TICK_NS (100 * CLOCK_MILLI)
#define RETRIES (2 * DEVICE_MAX + 2)

int session_new(struct session **out, struct engine *g, struct error *e)
{
    struct session *s = mem_alloc(1, sizeof *s);
    int rc;

    *out = NULL;
    if (!s)
        return error_set(e, ERR_MEMORY, "no memory for a session");
    s->engine = g;
    s->tokens = mem_alloc((size_t)g->info.context, sizeof *s->tokens);
    s->logits = mem_alloc((size_t)g->model->hp.n_vocab, sizeof *s->logits);
    if (!s->tokens || !s->logits || history_init(s) < 0)
        rc = error_set(e, ERR_MEMORY, "no memory for a session of %d tokens", g->info.context);
    else
        rc = sampler_init(&s->sampler, g->model->hp.n_vocab, &g->config.sampling, e);
    if (rc < 0) {
        session_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    sampler_release(&s->sampler);
    mem_free(s->tokens);
    mem_free(s->logits);
    mem_free(s->routed);
    mem_free(s);
}

void session_rewind(struct session *s, int n_tokens)
{
    if (n_tokens < 0)
        n_tokens = 0;
    if (n_tokens >= s->n_tokens)
        return;
    s->token_waits = false;
    s->n_tokens = n_tokens;
    s->counted = s->counted < n_tokens ? s->counted : n_tokens;
    kv_cut(&s->engine->kv, n_tokens);
}

/* Between layers: cancel, and about ten times a second a sign of life. */
int session_hooks_layer(void *ctx, int layer)
{
    struct engine *g = ctx;
    struct session *s = g->session;
    uint64_t now;

    if (engine_cancelled(g))
        return 1;
    now = clock_now();
    if (now - g->last_tick_ns < TICK_NS)
        return 0;
    g->last_tick_ns = now;
    if (s->progress_total) {
        int rows = g->forward.rows * layer / g->forward.model->hp.n_layers;
        struct event ev = {.kind = EVENT_PREFILL};

        ev.progress.done = (uint64_t)(g->forward.pos + rows);
        ev.progress.total = (uint64_t)s->progress_total;
        g->t.prefilled_tokens = g->forward.pos + rows - s->progress_start;
        if (engine_emit(g, &ev))
            return 1;
    }
    if (g->tick) {
        metrics_refresh(g);
        g->tick(g->tick_ctx);
    }
    return engine_cancelled(g);
}

void session_hooks_notice(void *ctx, const char *line)
{
    engine_notice(ctx, "%s", line);
}

static void observe(struct engine *g, const int *ids, bool prefill)
{
    const struct forward *f = &g->forward;
    struct routing r = {.rows = f->rows,
                        .pos = f->pos,
                        .n_layers = f->model->hp.n_layers,
                        .used = f->model->hp.n_experts_used,
                        .ids = ids,
                        .experts = f->experts,
                        .weights = f->weights,
                        .prefill = prefill};

    if (g->observer)
        g->observer(g->observer_ctx, &r);
}

/* The rotary table of a sequence this long; a change of table voids every cached key. Returns the
 * first position to compute. */
static int choose_rope(struct session *s, int start, int total, struct error *e)
{
    struct engine *g = s->engine;
    enum rope_variant v = rope_choose(&g->rope, total);

    if (v == s->variant)
        return start;
    for (int d = 0; d < g->n_devices; d++)
        if (g->slots[d].ops->rope_set && !g->slots[d].lost) {
            int rc = g->slots[d].ops->rope_set(g->slots[d].device, g->rope.cos[v], g->rope.sin[v],
                                               e);

            if (rc < 0)
                return rc;
        }
    s->variant = v;
    kv_cut(&g->kv, 0);
    if (start)
        log_write(
            LOG_LEVEL_INFO,
            "the text crosses %d tokens: its rotary factors change, %d tokens are computed again",
            g->rope.original_context, start);
    return 0;
}

int session_extend(struct session *s, const int *ids, int n, int chunk, float *logits,
                   bool all_logits, bool decode, struct error *e)
{
    struct engine *g = s->engine;
    struct forward *f = &g->forward;
    int start = s->n_tokens, total = start + n, at, rc = 0, tries = 0;
    size_t n_vocab = (size_t)g->model->hp.n_vocab;

    if (n <= 0)
        return error_set(e, ERR_USAGE, "no tokens to compute");
    if (n > g->info.context - start)
        return error_set(e, ERR_CONTEXT, "%d tokens do not fit into the context of %d (-c)", total,
                         g->info.context);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->model->hp.n_vocab)
            return error_set(e, ERR_USAGE, "token %d is not in the vocabulary of %d", ids[i],
                             g->model->hp.n_vocab);
    if (chunk < 1 || chunk > f->max_rows)
        chunk = f->max_rows;
    s->token_waits = false;
    memmove(s->tokens + start, ids, (size_t)n * sizeof *ids);
    if ((at = choose_rope(s, start, total, e)) < 0)
        return at;
    while (at < total) {
        int end = at < start ? start : total, rows = end - at < chunk ? end - at : chunk;
        bool last = at + rows == total;

        s->n_tokens = at;
        forward_placed(f, g->in_force, g->n_devices);
        g->trace.token = at;
        rc = forward_rows(f, s->tokens + at, rows, at, e);
        if (rc == 0 && at >= start && logits && all_logits)
            rc = forward_head(f, 0, rows, logits + (size_t)(at - start) * n_vocab, e);
        else if (rc == 0 && last && logits)
            rc = forward_head(f, rows - 1, 1, logits, e);
        if (rc == ERR_DEVICE && f->resume_at >= 0 && tries++ < RETRIES) {
            at = f->resume_at;
            continue;
        }
        if (rc < 0)
            break;
        if (at + rows > s->counted) {
            int first = s->counted > at ? s->counted - at : 0;

            if (!g->uncounted)
                metrics_routed(g, first, decode);
            if (first == 0)
                observe(g, s->tokens + at, !decode);
            s->counted = at + rows;
            history_write(s);
        }
        at += rows;
        s->n_tokens = at;
        if ((rc = model_check(g->model, e)) < 0)
            break;
        if (at < total) {
            place_safe_point(g);
            if (engine_cancelled(g)) {
                rc = error_set(e, ERR_CANCELLED, "cancelled");
                break;
            }
        }
    }
    /* rows that some layers wrote beyond the last whole token are void */
    if (rc < 0) {
        kv_cut(&g->kv, s->n_tokens);
        s->counted = s->counted < s->n_tokens ? s->counted : s->n_tokens;
    }
    return rc;
}
