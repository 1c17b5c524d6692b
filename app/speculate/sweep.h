/* --spec-sweep: the gain of drafts by drafter, policy and number of tokens per pass, for each
 * prompt and run, keeping every sample. An arm is a drafter, a policy and a number K of tokens that
 * each pass drafts, whether they pay or not, or as many as pay, decided at each pass (auto, as
 * outside a sweep); arm 0 has no drafts. Arms run in turn, and a sample's gain is relative to arm 0
 * of the same run, so that variations of the machine affect both. Main thread; the engine is used
 * directly, without its worker. */
#ifndef APP_SPECULATE_SWEEP_H
#define APP_SPECULATE_SWEEP_H

#include "app/common/report_format.h"
#include "app/options/options.h"
#include "engine/run/draft/drafter.h"
#include "engine/run/report/telemetry.h"

#include <stdio.h>

#define SWEEP_ARMS 256

struct sweep_arm {
    char drafter[16], policy[32]; /* words of --spec-type and --spec-accept */
    int k;                        /* 0: no drafts */
    bool adaptive;                /* at most k, as many as pay */
};

/* One answer. */
struct sweep_sample {
    int arm, prompt, run;
    double rate, gain; /* tokens/s; relative to arm 0 in the same run: 1.5 is half as many more */
    double ttft_ms;
    double token_ms, token_sd_ms; /* of its tokens: mean and deviation */
    int tokens, drafted, accepted, changed;
    uint64_t passes;
    /* read by the passes after the first token, the draft model's included (not what heads and MTP
     * blocks read for themselves); bytes per token relative to arm 0 */
    uint64_t bytes;
    double reads;
    bool same; /* the text equals arm 0's */
    /* drafts by position: verified, accepted with all before them */
    uint64_t tried[TELEMETRY_DRAFTS], right[TELEMETRY_DRAFTS];
};

struct sweep {
    struct sweep_arm arms[SWEEP_ARMS];
    int n_arms, runs, prompts, most_k;
    struct sweep_sample *samples;
    size_t n, room;
    bool exact; /* no arm's policy is lossy: a text that differs is an error */
};

/* "K=1..8", "K=1,2,4,auto drafts=lookup,model accept=prefix,top-k:2"; auto: at most the largest
 * number given with it, or --spec-draft-n-max if there is none. Defaults: the drafters of
 * --spec-type (auto: each that needs no model, and mtp or model if available), --spec-accept.
 * ERR_USAGE. */
int sweep_parse(struct sweep *s, const struct options *o, struct error *e);
void sweep_release(struct sweep *s);

/* sweep_report.c. JSON has all samples and a summary of the arms; CSV and JSON lines a row per
 * sample, Markdown a row per arm. ERR_MEMORY; ERR_USAGE: unsupported format. */
int sweep_write(FILE *f, enum report_format format, const struct sweep *s, struct error *e);
/* Rate, gain, acceptance and token time by arm, acceptance by position. */
int sweep_draw(const char *path, const struct sweep *s, struct error *e);

/* The mode. */
int sweep_mode_run(struct options *o, struct error *e);

#endif
