/* Measures the loss by deferring experts: the same tokens computed exactly and with deferral, their
 * distributions compared. Engine thread, outside a turn. Lossy options are offered only with a
 * measurement of their loss. */
#include "engine/base/divergence.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <limits.h>
#include <string.h>

#define LOSS_TOKENS 256

void engine_defer_set(struct engine *g, int n)
{
    g->forward.defer = n > 0 ? n : 0;
    lossy_changed(g);
}

int engine_defer(const struct engine *g)
{
    return g->forward.defer;
}

int engine_defer_loss(struct engine *g, int from, struct defer_loss *out, struct error *e)
{
    int total = g->session->n_tokens, defer = g->forward.defer, n_vocab = g->model->hp.n_vocab, n,
        rc = 0;
    int *ids = mem_alloc((size_t)total + 1, sizeof *ids);
    float *exact = NULL;

    memset(out, 0, sizeof *out);
    n = total - from < LOSS_TOKENS ? total - from : LOSS_TOKENS;
    if (from < 1 || n < 1) {
        rc = error_set(e, ERR_USAGE, "there is no answer to compare");
        goto out;
    }
    if (ids)
        memcpy(ids, g->session->tokens, (size_t)total * sizeof *ids);
    exact = mem_alloc((size_t)n * (size_t)n_vocab, sizeof *exact);
    if (!ids || !exact) {
        rc = error_set(e, ERR_MEMORY, "no memory to compare %d tokens", n);
        goto out;
    }
    session_rewind(g->session, 0);
    g->session->counted = INT_MAX; /* the session's figures must not count this */
    g->forward.defer = 0;
    if ((rc = engine_eval(g, ids, from, NULL, false, e)) < 0 ||
        (rc = engine_eval(g, ids + from, n, exact, true, e)) < 0)
        goto out;
    session_rewind(g->session, from);
    g->session->counted = INT_MAX;
    g->forward.defer = defer;
    for (int i = 0; i < n && rc == 0; i++)
        if ((rc = engine_eval(g, ids + from + i, 1, g->session->logits, false, e)) == 0) {
            bool changed;
            double kl = divergence_kl(exact + (size_t)i * (size_t)n_vocab, g->session->logits,
                                      n_vocab, &changed);

            out->mean_kl += kl / n;
            out->largest_kl = kl > out->largest_kl ? kl : out->largest_kl;
            out->changed += changed;
            out->tokens++;
        }
    if (rc == 0 && from + n < total)
        rc = engine_eval(g, ids + from + n, total - from - n, NULL, false, e);
out:
    g->forward.defer = defer;
    g->session->counted = g->session->n_tokens;
    g->session->stored.due = false; /* its rows now have mixed settings */
    mem_free(ids);
    mem_free(exact);
    return rc;
}
