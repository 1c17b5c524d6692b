/* Fewer experts a token than the model was trained with: faster and lossy, so it comes with what it
 * costs and gains, measured on the same tokens. The layers' shapes say how many are chosen: all who
 * compute, count or place read it there. Engine thread, outside a turn. */
#include "engine/base/clock.h"
#include "engine/base/divergence.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <limits.h>
#include <string.h>

#define SHADOW_TOKENS 64

int engine_experts_trained(const struct engine *g)
{
    const struct hparams *hp = &g->model->hp;
    int most = 0;

    for (int l = 0; l < hp->n_layers; l++) {
        int used = g->used_trained ? g->used_trained[l] : hparams_layer(hp, l)->ffn.used;

        most = used > most ? used : most;
    }
    return most;
}

/* What the file says of each layer, before it is changed for the first time. */
static int remember(struct engine *g, struct error *e)
{
    const struct hparams *hp = &g->model->hp;

    if (g->used_trained)
        return 0;
    if (!(g->used_trained = mem_alloc((size_t)hp->n_layers, sizeof *g->used_trained)))
        return error_set(e, ERR_MEMORY, "no memory for the layers' experts");
    for (int l = 0; l < hp->n_layers; l++)
        g->used_trained[l] = hparams_layer(hp, l)->ffn.used;
    return 0;
}

/* Both at once; layers may be fused again, or not any more. */
static void use(struct engine *g, int n, float least)
{
    struct hparams *hp = &g->model->hp;

    for (int l = 0; l < hp->n_layers && hp->layers; l++)
        hp->layers[l].ffn.used = n > 0 && n < g->used_trained[l] ? n : g->used_trained[l];
    g->experts_used = n;
    g->forward.least = least;
    if (g->forward.plan)
        forward_placed(&g->forward, g->forward.plan, g->forward.n_devices);
    utility_forget(&g->utility);
}

int engine_experts_used_set(struct engine *g, int n, struct error *e)
{
    int rc = remember(g, e), most = rc < 0 ? 0 : engine_experts_trained(g);

    if (rc < 0)
        return rc;
    if (n && !most)
        return error_set(e, ERR_USAGE, "--experts-used: the model has no experts to choose from");
    if (n < 0 || n > most)
        return error_set(e, ERR_USAGE, "--experts-used %d: a token of this model uses %d; 1 to %d",
                         n, most, most);
    stored_stop(g);
    use(g, n, g->forward.least);
    return 0;
}

int engine_experts_least_set(struct engine *g, float least, struct error *e)
{
    int rc = remember(g, e);

    if (rc < 0)
        return rc;
    if (least != 0.0f && !engine_experts_trained(g))
        return error_set(e, ERR_USAGE, "--experts-weight: the model has no experts to choose from");
    if (!(least >= 0.0f && least <= 1.0f))
        return error_set(e, ERR_USAGE, "--experts-weight %g: a weight from 0 to 1 is expected",
                         (double)least);
    stored_stop(g);
    use(g, g->experts_used, least);
    return 0;
}

void engine_experts_lossy(const struct engine *g, int *used, float *least)
{
    *used = g->experts_used;
    *least = g->forward.least;
}

/* The session's tokens from `from` on once more, one by one. */
static int step(struct engine *g, const int *ids, int from, int n, float *logits, uint64_t *ns,
                struct error *e)
{
    size_t n_vocab = (size_t)g->model->hp.n_vocab;
    uint64_t start = clock_now();
    int rc = 0;

    session_rewind(g->session, from);
    g->session->counted = INT_MAX; /* figures of the session are not to grow by this */
    for (int i = 0; i < n && rc == 0; i++)
        rc = engine_eval(g, ids + from + i, 1, logits + (size_t)i * n_vocab, false, e);
    *ns = clock_now() - start;
    return rc;
}

static void compare(const float *exact, const float *fewer, int n, int n_vocab,
                    struct fewer_experts *out)
{
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * (size_t)n_vocab;
        bool changed;
        double kl = divergence_kl(exact + at, fewer + at, n_vocab, &changed);

        out->mean_kl += kl / n;
        out->largest_kl = kl > out->largest_kl ? kl : out->largest_kl;
        out->changed += changed;
    }
    out->tokens = n;
}

int engine_experts_used_loss(struct engine *g, int from, struct fewer_experts *out, struct error *e)
{
    float least = g->forward.least;
    int total = g->session->n_tokens, n_vocab = g->model->hp.n_vocab, fewer = g->experts_used,
        defer = g->forward.defer, n = total - from < SHADOW_TOKENS ? total - from : SHADOW_TOKENS,
        rc = 0;
    size_t values = n > 0 ? (size_t)n * (size_t)n_vocab : 0;
    int *ids = mem_alloc((size_t)total + 1, sizeof *ids);
    float *exact = NULL, *lossy = NULL;
    uint64_t ns[2];

    *out = (struct fewer_experts){0};
    if (from < 1 || n < 1 || (!fewer && least <= 0 && !defer)) {
        mem_free(ids);
        return error_set(e, ERR_USAGE, "there is no answer of fewer experts to compare");
    }
    exact = mem_alloc(values, sizeof *exact);
    lossy = mem_alloc(values, sizeof *lossy);
    if (!ids || !exact || !lossy) {
        rc = error_set(e, ERR_MEMORY, "no memory to compare %d tokens", n);
        goto out;
    }
    memcpy(ids, g->session->tokens, (size_t)total * sizeof *ids);
    if ((rc = remember(g, e)) < 0)
        goto out;
    g->forward.defer = 0;
    use(g, 0, 0);
    session_rewind(g->session, 0);
    g->session->counted = INT_MAX;
    if ((rc = engine_eval(g, ids, from, NULL, false, e)) == 0)
        rc = step(g, ids, from, n, exact, &ns[0], e);
    g->forward.defer = defer;
    use(g, fewer, least);
    if (rc == 0 && (rc = step(g, ids, from, n, lossy, &ns[1], e)) == 0) {
        compare(exact, lossy, n, n_vocab, out);
        out->exact_rate = n * 1e9 / (double)ns[0];
        out->rate = n * 1e9 / (double)ns[1];
    }
    if (rc == 0 && from + n < total)
        rc = engine_eval(g, ids + from + n, total - from - n, NULL, false, e);
out:
    g->session->counted = g->session->n_tokens;
    g->session->stored.due = false; /* its rows are now of both settings */
    mem_free(ids);
    mem_free(exact);
    mem_free(lossy);
    return rc;
}
