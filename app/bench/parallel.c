/* Several texts in parallel, as in a batch with --parallel and in a server. A pass computes one
 * token of each; an expert chosen by any of them is read once, so the rate is compared with the
 * bytes of the union of experts in the warm-up. Main thread. */
#include "app/bench/internal.h"
#include "app/common/signals.h"
#include "app/common/turns.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <string.h>

#define APART 997 /* distance in tokens between the texts */

/* The experts of one row of a pass; the last row adds the bytes that all of them read. */
static void count_union(void *ctx, const struct routing *r)
{
    struct bench_arm *a = ctx;
    const struct model *m = engine_info(a->g)->model;
    size_t used = (size_t)r->used;

    if (r->rows != 1)
        return;
    for (int l = 0; l < r->n_layers; l++)
        memcpy(a->chosen + ((size_t)l * (size_t)a->parallel + (size_t)a->n_chosen) * used,
               r->experts + (size_t)l * r->layer_stride, used * sizeof *a->chosen);
    if (++a->n_chosen < a->parallel)
        return;
    a->n_chosen = 0;
    /* every text has rows of its own */
    a->read_bytes += a->roofline.head +
                     roofline_rows_bytes(&a->roofline, m, a->chosen, a->parallel, r->pos) +
                     (uint64_t)(a->parallel - 1) * roofline_state_bytes(&a->roofline, r->pos, 1);
}

static int begin_count(struct bench_arm *a, const struct bench_test *t, struct error *e)
{
    const struct hparams *hp = &engine_info(a->g)->model->hp;

    a->read_bytes = 0;
    a->n_chosen = 0;
    a->parallel = t->parallel;
    a->chosen = mem_alloc((size_t)(hp->n_layers * t->parallel),
                          (size_t)hp->n_experts_used * sizeof *a->chosen);
    if (!a->chosen)
        return error_set(e, ERR_MEMORY, "out of memory for the counts of experts");
    engine_observe(a->g, count_union, a);
    return 0;
}

/* Adds tokens from .. from + n - 1 of text i to the session, computed in chunks, like a prompt. */
static int fill(const struct bench *b, const struct bench_arm *a, struct session *s, int i,
                int from, int n, unsigned seed, struct error *e)
{
    int *ids = bench_tokens(b, a, i * APART + from, n, seed, e), rc = 0;

    if (!ids)
        return ERR_MEMORY;
    if (n)
        rc = engine_session_eval(s, ids, n, 0, NULL, false, e);
    mem_free(ids);
    return rc;
}

/* The timed part: all prompts, then a token of each per pass. */
static int measure(struct bench *b, size_t arm, const struct bench_test *t, struct session **s,
                   int *ids, unsigned seed, bool counted, struct error *e)
{
    const struct bench_arm *a = &b->arms[arm];
    int rc = 0;

    for (int i = 0; i < t->parallel && rc == 0; i++)
        rc = fill(b, a, s[i], i, t->n_depth, t->n_prompt, seed, e);
    for (int k = 0; k < t->n_gen && rc == 0 && !signals_last(); k++) {
        uint64_t one = clock_now();

        for (int i = 0; i < t->parallel; i++)
            ids[i] = bench_token_at(b, a, i * APART + t->n_depth + t->n_prompt + k, seed);
        rc = engine_sessions_eval(s, t->parallel, ids, e);
        if (counted && rc == 0)
            rc = turns_sample(&b->token_ms[arm], (double)(clock_now() - one) * 1e-6, e);
    }
    return rc;
}

/* Includes the engine's own session. */
static int first_session(struct bench_arm *a, struct session **s)
{
    *s = engine_session(a->g);
    engine_session_forget(*s);
    return 0;
}

int bench_once_parallel(struct bench *b, size_t arm, const struct bench_test *t, unsigned seed,
                        bool counted, double *ns, struct error *e)
{
    struct bench_arm *a = &b->arms[arm];
    size_t n = (size_t)t->parallel;
    struct session **s = mem_alloc(n, sizeof *s);
    int *ids = mem_alloc(n, sizeof *ids),
        rc = s && ids ? 0 : error_set(e, ERR_MEMORY, "out of memory for %d texts", t->parallel);
    uint64_t start;

    for (int i = 0; i < t->parallel && rc == 0; i++)
        if ((rc = i ? engine_session_open(a->g, &s[i], e) : first_session(a, s)) == 0)
            rc = fill(b, a, s[i], i, 0, t->n_depth, 0, e);
    if (rc == 0 && b->counting)
        rc = begin_count(a, t, e);
    if (counted)
        bench_load_begin(b);
    start = clock_now();
    if (rc == 0)
        rc = measure(b, arm, t, s, ids, seed, counted, e);
    *ns = (double)(clock_now() - start);
    if (counted)
        bench_load_end(b, arm, (t->n_prompt + t->n_gen) * t->parallel);
    engine_observe(a->g, NULL, NULL);
    mem_free(a->chosen);
    a->chosen = NULL;
    for (int i = 1; i < t->parallel && s; i++)
        engine_session_close(s[i]);
    engine_session_forget(engine_session(a->g));
    mem_free(s);
    mem_free(ids);
    return rc < 0 ? rc : signals_check(e);
}
