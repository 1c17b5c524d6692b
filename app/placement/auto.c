/* --place auto: decides by measurement whether this model should use the GPU here. A few tokens
 * under each candidate, in several interleaved rounds, so that changes of the machine's speed
 * affect all alike; the GPU is used only if it is faster beyond the noise. The result is stored by
 * model, device and driver, so this happens once, and after an answer, so that nobody waits for it.
 * Thread: the engine's. */
#include "app/placement/auto.h"

#include "app/common/turns.h"
#include "app/setup/resolve.h"
#include "app/setup/test_text.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/text/tokenizer.h"
#include "engine/placement/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PROMPT 24 /* tokens in the context while measuring, at least */
#define TOKENS 6  /* measured tokens per candidate and round */
/* even: the order of the candidates is reversed from round to round */
#define ROUNDS 6

static const char *const candidates[] = {"cpu", "gpu", "attention-gpu", "experts-gpu", "balanced"};
enum { N_CANDIDATES = (int)(sizeof candidates / sizeof *candidates) };

/* Samples of one candidate; used: its plan uses the device at all (balanced may not). */
struct candidate {
    double ns[ROUNDS];
    bool used;
};

struct trial {
    struct engine *g;
    const int *ids;
    int n, from;
    struct candidate *c; /* (N_CANDIDATES) */
};

static int measure(struct engine *g, const int *ids, int n, int from, double *ns, struct error *e)
{
    uint64_t start;
    int rc = 0;

    engine_session_rewind(g, from);
    start = clock_now();
    for (int i = 0; i < TOKENS && rc == 0; i++)
        rc = engine_eval(g, &ids[(PROMPT + i) % n], 1, NULL, false, e);
    *ns = (double)(clock_now() - start) / TOKENS;
    return rc;
}

/* One run of a candidate; that of a warm-up is discarded. */
static int try_candidate(void *ctx, size_t i, size_t position, int round, struct error *e)
{
    struct trial *t = ctx;
    struct candidate *c = &t->c[i];
    char line[120];
    double ns;
    int rc;

    snprintf(line, sizeof line, "auto: measuring %s, round %d of %d (Esc stops it)", candidates[i],
             round + 2, ROUNDS + 1);
    engine_progress(t->g, line);
    rc = place_apply(t->g, candidates[i], e);
    c->used = plan_uses_devices(engine_plan(t->g));
    if (rc == 0 && i && !c->used) /* the CPU was measured already */
        return 0;
    if (rc == 0)
        rc = measure(t->g, t->ids, t->n, t->from, &ns, e);
    if (rc == 0 && round >= 0)
        c->ns[round] = ns;
    return rc;
}

/* Whether one is significantly faster than the CPU. Paired by rounds, as logarithms, so that a
 * single outlier does not decide. */
static bool faster(const struct candidate *cpu, const struct candidate *other)
{
    double gain[ROUNDS], sum = 0;

    for (int i = 0; i < ROUNDS; i++)
        sum += gain[i] = log(cpu->ns[i] / other->ns[i]);
    return sum > 0 && series_pairs_differ(gain, ROUNDS);
}

/* The winner, and how much slower than the CPU the best plan with the device was (negative:
 * faster). */
static int winner_of(struct candidate c[N_CANDIDATES], double *loss)
{
    struct series_figures f[N_CANDIDATES];
    int best = 0;

    for (int i = 0; i < N_CANDIDATES; i++) {
        struct candidate sorted = c[i];

        series_summarise_sorted(sorted.ns, ROUNDS, &f[i]);
        if (i && c[i].used && (!best || f[i].median < f[best].median))
            best = i;
    }
    *loss = best && f[best].median > 0 ? 1 - f[0].median / f[best].median : 0;
    return best && f[best].median < f[0].median && faster(&c[0], &c[best]) ? best : 0;
}

/* Between two answers: the session's tokens are restored, and its counts do not change. */
static int measure_all(struct engine *g, const int *ids, int n, struct candidate c[N_CANDIDATES],
                       struct error *e)
{
    int before = engine_session_tokens(g, NULL), room = engine_info(g)->context - TOKENS,
        from = before < room ? before : room, rc = 0;
    struct plan *plan = plan_copy(engine_plan(g)), *prompt = plan_copy(engine_prompt_plan(g));

    if (!plan || !prompt != !engine_prompt_plan(g)) {
        plan_free(plan);
        return error_set(e, ERR_MEMORY, "out of memory for measuring placements");
    }
    engine_counting_set(g, false);
    if (prompt) /* the candidates need not fit beside it */
        engine_prompt_plan_set(g, NULL, NULL);
    engine_session_rewind(g, from);
    if (from < PROMPT) {
        rc = engine_eval(g, ids, PROMPT - from, NULL, false, e);
        from = PROMPT;
    }
    if (rc == 0) {
        struct trial trial = {g, ids, n, from, c};
        const struct turns turns = {.n_arms = N_CANDIDATES,
                                    .rounds = ROUNDS,
                                    .warm_ups = 1,
                                    .order = TURNS_MIRRORED,
                                    .run = try_candidate,
                                    .ctx = &trial};

        rc = turns_run(&turns, e);
    }
    engine_session_rewind(g, before);
    place_restore(g, plan, prompt);
    engine_counting_set(g, true);
    return rc;
}

int place_auto(struct engine *g, struct error *e)
{
    const struct planner_input *in = engine_planner_input(g, true, false, false, e);
    struct candidate c[N_CANDIDATES] = {{{0}, false}};
    struct error ignored = {0};
    int *ids = NULL, n = 0, rc, winner;
    double loss;

    if (!in)
        return e ? e->code : ERR_DEVICE;
    if (in->target && !in->verdict) {
        rc = test_text_ids(NULL, engine_info(g)->tokenizer, &ids, &n, e);
        if (rc == 0 && (n < PROMPT || engine_info(g)->context < PROMPT + TOKENS))
            rc = error_set(e, ERR_INPUT, "--place auto: the context is too short to measure in");
        if (rc == 0)
            rc = measure_all(g, ids, n, c, e);
        mem_free(ids);
        if (rc < 0)
            return rc;
        winner = winner_of(c, &loss);
        if (engine_verdict_set(g, candidates[winner], loss, &ignored) < 0)
            log_write(LOG_LEVEL_WARNING, "%s", ignored.text);
    }
    return place_apply(g, "auto", e);
}

bool place_auto_due(struct engine *g, const char *place)
{
    const struct planner_input *in;

    if (!place || strcmp(place, "auto") != 0)
        return false;
    in = engine_planner_input(g, true, false, false, NULL);
    return in && in->target && !in->verdict && engine_info(g)->tokenizer;
}
