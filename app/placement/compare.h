/* Compares placements on one text: the same tokens under every plan, in short interleaved blocks,
 * so that changes of the machine's speed affect all plans alike; and verifies that the plan does
 * not change the text: every logit of every plan is compared, bit for bit if the weights are
 * quantised. Thread: the engine's (headless: the main thread). */
#ifndef APP_PLACEMENT_COMPARE_H
#define APP_PLACEMENT_COMPARE_H

#include "app/common/machine_load.h"
#include "app/common/report_format.h"
#include "app/options/options.h"
#include "engine/base/series.h"
#include "engine/run/engine.h"

#include <stdio.h>

#define COMPARE_MAX 64 /* plans */

#define COMPARE_BLOCK 8 /* tokens under one plan before switching to the next */

struct compare_plan {
    /* "cpu+prompt:gpu": prompts have a plan of their own, prompt; "": the same */
    char spec[PLAN_NAME], prompt[PLAN_NAME], name[2 * PLAN_NAME + 16];
    /* the strategies' first results; NULL: not computed yet, or it re-plans */
    struct plan *plan, *prompt_plan;
    double x;                      /* of a range: the count or size; else 0 */
    struct series prefill, decode; /* tokens a second: of whole prompts, of blocks */
    /* logarithm of a block's rate relative to the first plan's at the same place; 0 for the first
     */
    struct series ratio;
    int defer;   /* "experts-gpu+defer:1": lossy, see engine_defer_set; 0: exact */
    double kl;   /* sum over the tokens whose logits differ */
    int changed; /* tokens whose most probable successor differs */
    bool same_tokens, same_bits;
    double worst_difference;     /* largest |logit - first plan's logit| */
    double share[DEVICE_MAX];    /* of the devices' busy time */
    double wait_ms, transfer_ms; /* a decoded token */
    uint64_t moved_bytes;        /* by switching to it, all switches */
    double switch_ms;            /* mean time until the plan was in force */
    double joules;               /* of processor and GPU in all blocks; 0: no counter is readable */
    /* tokens a second that the cost model expected before anything ran under the plan; 0: unknown
     */
    double expected_decode, expected_prefill;
    bool on_device; /* any of it runs on a device other than the CPU */
};

struct compare {
    struct compare_plan *plans;
    size_t n;
    int n_devices, block, repeats, prompts;
    char devices[DEVICE_MAX][32];
    bool exact;      /* quantised weights: logits must be bit-identical */
    uint64_t tokens; /* decoded under each plan */
    bool range;      /* plans are points of a sweep */
    /* blocks so far: the order of the plans continues across prompts */
    unsigned rounds;
    struct machine_load load; /* what the machine did during the comparison */
};

/* "cpu,gpu,hot:600M", also with ranges: layers:0..8, layers:0..32+4, experts:0..16, hot:0..600M,
 * memory:1G..2G (at most 9 points unless a step is given), with another plan for prompts:
 * cpu+prompt:gpu, and lossy ones: experts-gpu+defer:1. Fills c->plans with specs. ERR_USAGE. */
int compare_parse(struct compare *c, const char *list, struct error *e);
void compare_release(struct compare *c);
/* Adds one prompt's measurements: the first plan prefills ids and generates n_gen tokens greedily,
 * untimed; then every plan does the same with these tokens, `repeats` times. The order of the plans
 * is reversed from block to block. stop (may be NULL) is polled between blocks. The session is
 * cleared. The previous plan is restored. */
int compare_prompt(struct compare *c, struct engine *g, const int *ids, int n_ids, int n_gen,
                   int repeats, int (*stop)(void *ctx), void *ctx, struct error *e);
/* Ratio to the first plan: geometric mean, and whether it exceeds the noise (series_pairs_differ).
 */
double compare_ratio(const struct compare *c, size_t plan, bool *differs);
/* "gpu is 1.25 times as fast as cpu", "no difference beyond the noise": one line per plan. */
void compare_verdict(const struct compare *c, size_t plan, char *out, size_t size);
/* Whether other programs used the machine meanwhile, as detected by --bench; why gets one line. */
bool compare_disturbed(const struct compare *c, char *why, size_t size);
/* One sentence: the plan with the fastest decode, and those not significantly slower
 * (series_pairs_differ). */
void compare_fastest(const struct compare *c, char *out, size_t size);
/* Formats as --bench-format: md, csv, json (jsonl and sql as json). */
void compare_write(FILE *f, int format, const struct compare *c);

int compare_mode_run(struct options *o, struct error *e);

#endif
