/* Measures loss and speedup of lossy settings on the same tokens: the newest answer is computed
 * twice more, exactly and with the settings, each after a prompt computed likewise. Engine thread,
 * outside a turn. */
#include "engine/base/clock.h"
#include "engine/base/divergence.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <limits.h>
#include <string.h>

/* Types of keys and values: as exact as at open, and at least F16. */
static enum kv_type exact_type(enum kv_type opened, enum kv_type type)
{
    enum kv_type most = opened < KV_F16 ? opened : KV_F16;

    return type < most ? type : most;
}

static struct lossy exact_of(const struct engine *g)
{
    return (struct lossy){.k = exact_type(g->opened.k, g->config.kv_k),
                          .v = exact_type(g->opened.v, g->config.kv_v)};
}

static int take(struct engine *g, struct lossy l, struct error *e)
{
    int rc = fewer_experts_remember(g, e);

    if (rc < 0)
        return rc;
    g->forward.defer = l.defer;
    fewer_experts_use(g, l.used, l.least);
    return engine_kv_types_set(g, l.k, l.v, e);
}

bool engine_lossy(const struct engine *g)
{
    struct lossy is = lossy_now(g), exact = exact_of(g);

    return is.used || is.defer || is.least > 0 || is.k > exact.k || is.v > exact.v ||
           g->session->edits;
}

/* Recomputes the session's tokens with the given settings, those from `from` on one by one. */
static int compute(struct engine *g, struct lossy how, struct expert_edits *edits, const int *ids,
                   int from, int n, float *logits, uint64_t *ns, struct error *e)
{
    size_t n_vocab = (size_t)g->model->hp.n_vocab;
    uint64_t start;
    int rc = take(g, how, e);

    if (rc < 0)
        return rc;
    session_edits(g->session, edits);
    session_rewind(g->session, 0);
    g->session->counted = INT_MAX; /* the session's figures must not count this */
    rc = engine_eval(g, ids, from, NULL, false, e);
    start = clock_now();
    for (int i = 0; i < n && rc == 0; i++)
        rc = engine_eval(g, ids + from + i, 1, logits + (size_t)i * n_vocab, false, e);
    *ns = clock_now() - start;
    return rc;
}

static int likeliest(const float *logits, int n_vocab)
{
    int best = 0;

    for (int i = 1; i < n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* What the settings in effect answer to the prompt, at most n tokens; logits: n_vocab, overwritten.
 */
static int answer(struct engine *g, const int *prompt, int n_prompt, int n, float *logits,
                  struct shadow_loss *out, struct error *e)
{
    struct session *s = g->session;
    const struct sampling *how = &s->sampler.sampling;
    struct sampler sampler;
    int rc = sampler_init(&sampler, g->model->hp.n_vocab, how, e), id;

    if (rc < 0)
        return rc;
    sampler_seed(&sampler, how->seed);
    session_rewind(s, 0);
    s->counted = INT_MAX;
    if ((rc = sampler_prepare(&sampler, g->tokenizer, g->info.context, e)) == 0)
        rc = engine_eval(g, prompt, n_prompt, logits, false, e);
    while (rc == 0 && out->n_answer < n) {
        id = sampler_sample(&sampler, logits, s->tokens, (size_t)s->n_tokens, NULL);
        if (hparams_is_stop(&g->model->hp, id))
            break;
        out->answer[out->n_answer++] = id;
        if (out->n_answer < n)
            rc = engine_eval(g, &id, 1, logits, false, e);
    }
    sampler_release(&sampler);
    return rc;
}

static void compare(const float *exact, const float *fewer, const int *ids, int n, int n_vocab,
                    struct shadow_loss *out)
{
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * (size_t)n_vocab;
        bool changed;
        double kl = divergence_kl(exact + at, fewer + at, n_vocab, &changed);

        out->mean_kl += kl / n;
        out->largest_kl = kl > out->largest_kl ? kl : out->largest_kl;
        out->changed += changed;
        out->kl[i] = kl;
        out->ids[i] = ids[i];
        out->exact_top[i] = likeliest(exact + at, n_vocab);
        out->top[i] = likeliest(fewer + at, n_vocab);
    }
    out->tokens = n;
}

int engine_shadow(struct engine *g, int from, struct shadow_loss *out, struct error *e)
{
    const struct lossy lossy = lossy_now(g), exact = exact_of(g);
    int total = g->session->n_tokens, n_vocab = g->model->hp.n_vocab,
        n = total - from < SHADOW_TOKENS ? total - from : SHADOW_TOKENS, rc;
    size_t values = n > 0 ? (size_t)n * (size_t)n_vocab : 0;
    int *ids = mem_alloc((size_t)total + 1, sizeof *ids);
    float *right = NULL, *other = NULL;
    struct expert_edits *edits = expert_edits_share(g->session->edits);
    uint64_t ns[2];

    *out = (struct shadow_loss){0};
    if (from < 1 || n < 1 || !engine_lossy(g)) {
        mem_free(ids);
        expert_edits_free(edits);
        return error_set(e, ERR_USAGE, "there is no answer of lossy settings to compare");
    }
    right = mem_alloc(values, sizeof *right);
    other = mem_alloc(values, sizeof *other);
    if (!ids || !right || !other) {
        rc = error_set(e, ERR_MEMORY, "no memory to compare %d tokens", n);
        goto out;
    }
    memcpy(ids, g->session->tokens, (size_t)total * sizeof *ids);
    rc = compute(g, exact, NULL, ids, from, n, right, &ns[0], e);
    if (rc == 0)
        rc = answer(g, ids, from, n, other, out, e);
    if (rc < 0) {
        struct error ignored;

        take(g, lossy, &ignored);
        session_edits(g->session, edits);
    } else if ((rc = compute(g, lossy, edits, ids, from, n, other, &ns[1], e)) == 0) {
        compare(right, other, ids + from, n, n_vocab, out);
        out->exact_rate = n * 1e9 / (double)ns[0];
        out->rate = n * 1e9 / (double)ns[1];
    }
    if (rc == 0 && from + n < total)
        rc = engine_eval(g, ids + from + n, total - from - n, NULL, false, e);
out:
    g->session->counted = g->session->n_tokens;
    g->session->stored.due = false; /* it was computed more than once */
    expert_edits_free(edits);
    mem_free(ids);
    mem_free(right);
    mem_free(other);
    return rc;
}
