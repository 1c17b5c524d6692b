/* --spec-sweep: what drafts gain, by who drafts, by which policy, by how many tokens a pass, prompt
 * by prompt and run by run, every sample kept. An arm is a drafter, a policy and a number K of
 * tokens that each pass drafts, whether it pays or not, or as many as pay, pass by pass (auto, as
 * outside a sweep); arm 0 drafts nothing. Arms take turns, and
 * a sample's gain is against arm 0 of the same run, so that the machine's moods meet both. Main
 * thread; the engine is used directly, without its worker. */
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
    int k;                        /* 0: nothing is drafted */
    bool adaptive;                /* at most k, as many as pay */
};

/* One answer. */
struct sweep_sample {
    int arm, prompt, run;
    double rate, gain; /* tokens a second; of arm 0's in the same run: 1.5, half as many more */
    double ttft_ms;
    double token_ms, token_sd_ms; /* of its tokens: mean and deviation */
    int tokens, drafted, accepted, changed;
    uint64_t passes;
    /* that the passes behind the first token read, the draft model's too (not what heads and
     * further blocks read for themselves); a token's share of them against that of arm 0's */
    uint64_t bytes;
    double reads;
    bool same; /* the text is arm 0's */
    /* of drafts by position: verified, right with all before them */
    uint64_t tried[TELEMETRY_DRAFTS], right[TELEMETRY_DRAFTS];
};

struct sweep {
    struct sweep_arm arms[SWEEP_ARMS];
    int n_arms, runs, prompts, most_k;
    struct sweep_sample *samples;
    size_t n, room;
    bool exact; /* no arm's policy is lossy: another text is an error */
};

/* "K=1..8", "K=1,2,4,auto drafts=lookup,model accept=prefix,top-k:2"; auto: at most as many as the
 * largest number beside it, or --spec-draft-n-max where there is none. What is not said: the
 * drafters that --spec-type names (auto: each that needs nothing, mtp or model where there is one),
 * --spec-accept. ERR_USAGE. */
int sweep_parse(struct sweep *s, const struct options *o, struct error *e);
void sweep_release(struct sweep *s);

/* sweep_report.c. JSON has all samples and a summary of the arms; CSV and JSON lines a row a
 * sample, Markdown a row an arm. ERR_MEMORY; ERR_USAGE: a format that there is not. */
int sweep_write(FILE *f, enum report_format format, const struct sweep *s, struct error *e);
/* Rate, gain, acceptance and token time by arm, acceptance by position. */
int sweep_draw(const char *path, const struct sweep *s, struct error *e);

/* The mode. */
int sweep_mode_run(struct options *o, struct error *e);

#endif
