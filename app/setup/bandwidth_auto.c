/* See bandwidth_auto.h. */
#include "app/setup/bandwidth_auto.h"

#include "app/setup/test_text.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/series.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOKENS 48 /* of the test text */
#define BLOCK 8
#define ROUNDS 8
#define MEMBW_MS 60

/* The test text, at most TOKENS and what fits into the context. */
static int first_tokens(struct engine *g, int **ids, int *n, struct error *e)
{
    int rc = test_text_ids(NULL, engine_info(g)->tokenizer, ids, n, e),
        most = engine_info(g)->context < TOKENS ? engine_info(g)->context : TOKENS;

    *n = *n < most ? *n : most;
    return rc;
}

/* The log line of auto: the decision with its figures. The arrays are sorted on return. */
static void report(struct engine *g, const struct bandwidth *b, double *with, double *without)
{
    double gain = bandwidth_gain(with, without, ROUNDS);
    struct series_figures on, off;
    char line[240];

    series_summarise_sorted(with, ROUNDS, &on);
    series_summarise_sorted(without, ROUNDS, &off);
    snprintf(line, sizeof line,
             "bandwidth auto: %.2f tokens/s with the semaphore, %.2f without (%.1f GB/s, medians "
             "of %d blocks by turns): %s",
             on.median > 0 ? 1e9 * BLOCK / on.median : 0,
             off.median > 0 ? 1e9 * BLOCK / off.median : 0, b->rate, ROUNDS,
             b->active  ? "a gain, it stays on"
             : gain < 0 ? "a loss, it stays off"
                        : "no gain beyond the noise, it stays off");
    engine_tell(g, line);
}

int place_bandwidth(struct engine *g, enum bandwidth_mode mode, struct error *e)
{
    double rate = membw_read(NULL, 0, engine_info(g)->n_threads, MEMBW_MS), with[ROUNDS],
           without[ROUNDS];
    struct bandwidth *b = engine_bandwidth(g);
    int *ids = NULL, n = 0, rc = 0;

    engine_bandwidth_set(g, mode, rate);
    if (mode != BANDWIDTH_AUTO || engine_info(g)->n_devices < 2)
        return 0;
    rc = first_tokens(g, &ids, &n, e);
    for (int k = -1; k < ROUNDS && rc == 0; k++) /* the first round warms up */
        for (int i = 0; i < 2 && rc == 0; i++) { /* each goes first equally often */
            int on = i ^ (k & 1);
            uint64_t start;

            engine_session_clear(g);
            b->active = on;
            start = clock_now();
            for (int at = 0; at < BLOCK && at < n && rc == 0; at++)
                rc = engine_eval(g, ids + at, 1, NULL, false, e);
            if (k >= 0)
                (on ? with : without)[k] = (double)(clock_now() - start);
        }
    b->active = false;
    engine_session_clear(g);
    mem_free(ids);
    if (rc == 0) {
        bandwidth_decide(b, with, without, ROUNDS);
        report(g, b, with, without);
    }
    return rc;
}
