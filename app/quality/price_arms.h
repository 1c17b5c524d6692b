/* The settings that --price compares: parsed, opened together, with their results. Main thread. */
#ifndef APP_QUALITY_PRICE_ARMS_H
#define APP_QUALITY_PRICE_ARMS_H

#include "app/options/options.h"
#include "app/quality/log_probs.h"
#include "engine/base/series.h"
#include "engine/run/engine.h"

struct price_arm {
    char label[160]; /* "cache-type-k=q8_0 + cache-type-v=q8_0"; "base" */
    struct options o;
    struct engine *engine; /* NULL: not open */
    bool counted;          /* reopened: its text was already counted */
    struct divergence_sums sums;
    float *kl, *diff; /* of each position */
    struct series prefill, decode;
    uint64_t bytes; /* weights, KV cache and scratch, on all devices */
};

struct price_arms {
    struct price_arm *all; /* 0: the base */
    int n;
};

/* The base and the settings of --price, none of them opened; release in any case. The base is the
 * most exact configuration of the model, except for what the user set; the context is `context`
 * tokens unless set. ERR_USAGE: no such option, or not one of opening a model; ERR_MODEL. */
int price_arms_init(struct price_arms *a, const struct options *o, int context, struct error *e);
void price_arms_release(struct price_arms *a);
/* Whether all of them fit together into the memory that is free now. */
bool price_arms_fit(const struct price_arms *a);
int price_arm_open(struct price_arm *a, struct error *e);
void price_arm_close(struct price_arm *a);
/* Its loss occurs only in tokens computed one by one (--defer-experts). */
bool price_arm_by_token(const struct price_arm *a);

#endif
