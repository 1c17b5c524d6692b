/* auto's measurement: what the jobs of a few sampled blocks cost, on the CPU and on the devices
 * that strategies fill, for one token and for rows of a prompt. It runs within a time limit counted
 * by the caller's clock, copies a bounded number of bytes, and leaves the devices as they were.
 * Owner: the engine, whose thread alone runs it; the clock may be a test's. */
#ifndef ENGINE_PLACEMENT_TRIAL_H
#define ENGINE_PLACEMENT_TRIAL_H

#include "engine/device/device.h"
#include "engine/placement/planner.h"

/* Time that auto may spend: this much while it knows nothing, and this share of the time that was
 * computed so far. */
#define TRIAL_FIRST_NS 500000000ull
#define TRIAL_SHARE 50                    /* a fiftieth: 2 % */
#define TRIAL_BYTES ((uint64_t)128 << 20) /* of weights copied, or one layer's sample if larger */
#define TRIAL_LAYERS 4                    /* sampled on a device, at most */
#define TRIAL_SIDES 5                     /* the CPU and as many devices, at most */
#define TRIAL_ROWS 64                     /* of a prompt, at most */

/* ns left of what `computed` allows, after `spent`; 0: none. */
uint64_t trial_allowance(uint64_t computed_ns, uint64_t spent_ns);

enum trial_job { TRIAL_EXPERT, TRIAL_EXPERTS, TRIAL_ATTENTION, TRIAL_HEAD, TRIAL_JOBS };

/* Samples of one kind of job, in ns: the newest first. */
#define TRIAL_SAMPLES 12
struct trial_samples {
    int n;
    double ns[TRIAL_SAMPLES];
};

/* Sides: the CPU, then the devices in the order in which strategies fill them, as far as they
 * compute any layer. A prompt's job has `rows` rows; the head is measured once. */
struct trial_costs {
    struct trial_samples of[TRIAL_SIDES][PLAN_PHASES][TRIAL_JOBS];
    int sides, device[TRIAL_SIDES]; /* the input's numbers */
    char why[TRIAL_SIDES][160];     /* it failed and has no samples; "": it did not */
    int rows, layers, of_layers;    /* sampled on a device, at most */
    int pass_rows;                  /* of a prompt's pass: -ub */
    int used;                       /* experts of a sample */
    uint64_t bytes, ns;             /* copied; measured in all */
    bool complete;                  /* every job has enough samples */
};

struct trial_run {
    const struct model *model;
    struct device *const *devices; /* of the input's numbers */
    const struct planner_input *input;
    const struct plan *keep[2 * PLAN_PHASES]; /* their blocks stay on the device; NULL: none */
    int kv_len;                               /* rows from here on are overwritten */
    int max_rows;                             /* of a job: -ub */
    uint64_t limit_ns;                        /* no piece begins that would probably end later */
    uint64_t (*now)(void *ctx);               /* ns */
    /* called before every piece; not 0: ERR_CANCELLED */
    int (*stop)(void *ctx);
    void *ctx;
};

/* Adds samples to *c (all zeros at first). At most one piece (a job, or RESIDENCY_CHUNK bytes of an
 * upload) goes beyond the limit. A device that fails is left out as long as there is another.
 * ERR_MEMORY, ERR_CANCELLED, or the last device's error: what was sampled stays, blocks that it
 * brought are dropped. */
int trial_measure(struct trial_costs *c, const struct trial_run *r, struct error *e);

/* The input with these costs instead of its own, for planner_run and planner_token_ns, where no
 * device has room but those that were sampled: of a token, or of `rows` rows of a prompt, whose
 * experts are counted as `used` jobs; of a pass of pass_rows whose groups overlap, by the costs of
 * a row (prompt_rows), if it has PLANNER_OVERLAP or more. step: -1, or the number of a cost that is
 * raised by its standard error (0 .. trial_steps - 1). */
int trial_steps(const struct trial_costs *c);
void trial_input(const struct trial_costs *c, const struct planner_input *in, enum plan_phase phase,
                 int step, struct planner_input *out);

#endif
