/* A server's figures: from /metrics (Prometheus text) by the names in metrics.def, and from
 * llama-server's /slots. Rates are differences between two readings. Pure; any thread. */
#ifndef APP_CONNECT_FIGURES_H
#define APP_CONNECT_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

#define FIGURES_SLOTS 64 /* with more slots their rate is not computed */

/* NAN: not reported. */
struct figures {
    double running, waiting; /* requests */
    double kv;               /* share of the KV cache in use, 0 .. 1 */
    /* of all its clients: tokens of answers, and of prompts without the cached ones */
    double decode_tok_s, prompt_tok_s;
    double cached;       /* share of prompt tokens that were cached, 0 .. 1 */
    double accepted;     /* share of the drafted tokens that were accepted, 0 .. 1 */
    double draft_length; /* tokens of a pass with drafts, the model's own included, mean */
    char why[80];        /* why there are no figures; "": there are some */

    /* counters for figures_rate; ended: without the tokens of running requests */
    double generated, ended, computed;
    struct {
        int task;
        double generated;
    } slots[FIGURES_SLOTS];
    int n_slots; /* 0: not reported, too many, or not needed */
};

/* All NAN. */
void figures_init(struct figures *f);
/* false: none of the names was found. Samples of several label sets are summed; shares and lengths
 * averaged. */
bool figures_read_metrics(struct figures *f, const char *text, size_t n);
/* llama-server's list of slots: fills what f does not have yet. false: there are none. */
bool figures_read_slots(struct figures *f, const char *text, size_t n);
/* The rates from an earlier reading's counters, `seconds` ago. A counter that fell (a restarted
 * server) gives none. */
void figures_rate(struct figures *f, const struct figures *before, double seconds);

#endif
