/* --place auto: "should this model use the GPU here?", answered by measuring. A few tokens under each candidate, one candidate after the other
 * in several rounds, so that whatever the machine does meets all alike; the GPU is taken only when it wins beyond the noise. The
 * verdict is kept by model, device and driver, so this happens once. Thread: whoever opens the engine. */
#include "app/bench.h"
#include "app/place.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/model/tokenizer.h"
#include "engine/placement/planner.h"

#include <string.h>

#define PROMPT 24                /* tokens in the context while measuring */
#define TOKENS 6                 /* measured tokens of a candidate a round */
#define ROUNDS 5

static const char *const candidates[] = {"cpu", "gpu", "attention-gpu", "experts-gpu", "balanced"};
enum { N_CANDIDATES = (int)(sizeof candidates / sizeof *candidates) };

static int measure(struct engine *g, const int *ids, int n, double *ns, struct error *e)
{
    uint64_t start;
    int rc = 0;

    engine_session_rewind(g, PROMPT);
    start = clock_now();
    for (int i = 0; i < TOKENS && rc == 0; i++)
        rc = engine_eval(g, &ids[(PROMPT + i) % n], 1, NULL, false, e);
    *ns = (double)(clock_now() - start) / TOKENS;
    return rc;
}

static int round_of(struct engine *g, const int *ids, int n, int round, double samples[N_CANDIDATES][ROUNDS], struct error *e)
{
    int rc = 0;

    for (int c = 0; c < N_CANDIDATES && rc == 0; c++) {
        double ns;

        rc = place_apply(g, candidates[c], e);
        if (rc == 0)
            rc = measure(g, ids, n, &ns, e);
        if (rc == 0 && round >= 0)
            samples[c][round] = ns;
    }
    return rc;
}

/* The winner and by how much the best plan with the GPU is slower than the CPU alone. */
static int judge(double samples[N_CANDIDATES][ROUNDS], double *loss)
{
    struct series_figures f[N_CANDIDATES];
    int best = 1;

    for (int c = 0; c < N_CANDIDATES; c++)
        series_summarise_sorted(samples[c], ROUNDS, &f[c]);
    for (int c = 2; c < N_CANDIDATES; c++)
        best = f[c].median < f[best].median ? c : best;
    *loss = f[0].median > 0 ? f[best].median / f[0].median - 1 : 0;
    return f[best].median < f[0].median && series_differ(&f[best], &f[0]) ? best : 0;
}

int place_auto(struct engine *g, struct error *e)
{
    const struct planner_input *in = engine_planner_input(g, true, false, false, e);
    double samples[N_CANDIDATES][ROUNDS], loss;
    struct error ignored = {0};
    int *ids = NULL, n = 0, rc, winner;

    if (!in)
        return e ? e->code : ERR_DEVICE;
    if (!in->target || in->verdict)
        return place_apply(g, "auto", e);
    rc = bench_text(NULL, engine_info(g)->tokenizer, &ids, &n, e);
    if (rc == 0 && (n < PROMPT || engine_info(g)->context < PROMPT + TOKENS))
        rc = error_set(e, ERR_INPUT, "--place auto: the context is too short to measure in");
    if (rc == 0)
        rc = engine_eval(g, ids, PROMPT, NULL, false, e);
    for (int round = -1; round < ROUNDS && rc == 0; round++)         /* the first round warms up */
        rc = round_of(g, ids, n, round, samples, e);
    mem_free(ids);
    engine_session_clear(g);
    if (rc < 0)
        return rc;
    winner = judge(samples, &loss);
    if (engine_verdict_set(g, candidates[winner], loss, &ignored) < 0)
        log_write(LOG_LEVEL_WARNING, "%s", ignored.text);
    return place_apply(g, "auto", e);
}
