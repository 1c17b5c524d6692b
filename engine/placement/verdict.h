/* auto's verdict: which strategy is fastest for tokens and which for prompts, on which of the
 * devices, by the costs of a few sampled blocks (trial.h), with the table that it was decided from.
 * Kept as a file in the cache directory, by model and devices; one made with another driver or on
 * another machine is void. Plain data; any thread. */
#ifndef ENGINE_PLACEMENT_VERDICT_H
#define ENGINE_PLACEMENT_VERDICT_H

#include "engine/placement/plan.h"
#include "engine/placement/planner.h"

struct trial_costs;

#define VERDICT_DEVICES 4 /* measured, at most */
/* Candidates: the CPU alone and four strategies; six more for every device after the first. */
#define VERDICT_ROWS (5 + 6 * (VERDICT_DEVICES - 1))
#define VERDICT_LINE 400
#define VERDICT_KEY 300

/* A candidate: ns of a token, and of a prompt's token, expected from the samples; their standard
 * error as a share of it. */
struct verdict_row {
    char spec[PLAN_NAME];
    double ns[PLAN_PHASES], error[PLAN_PHASES];
};

struct verdict {
    bool decided; /* else spec is "cpu" for want of samples */
    char spec[PLAN_PHASES][PLAN_NAME];
    /* of the best candidate other than cpu, whether it was chosen or not: its name, how much faster
     * than the CPU alone (0.2: 20 %; negative: slower), and two standard errors of that */
    char best[PLAN_PHASES][PLAN_NAME];
    double gain[PLAN_PHASES], error[PLAN_PHASES];
    int layers, of_layers;                 /* sampled */
    uint64_t spent_ns, computed_ns, bytes; /* measuring, computing until then, copied */
    bool kept;                             /* read from the cache directory */
    int n_rows;                            /* 0: there is no verdict */
    struct verdict_row row[VERDICT_ROWS];
    char device[400]; /* those measured */
};

/* What it depends on besides model and devices, as text of one line each. */
struct verdict_keys {
    char driver[VERDICT_KEY], machine[VERDICT_KEY];
};

/* Decides from samples; a candidate is chosen if it is faster than the CPU alone by more than two
 * standard errors. spent, computed, device and kept are the
 * caller's. ERR_MEMORY. */
int verdict_decide(struct verdict *v, const struct trial_costs *c, const struct planner_input *in,
                   struct error *e);
/* "auto: tokens cpu (gpu would be 12 % slower, ± 3 %), prompts gpu (...); ..." */
void verdict_line(const struct verdict *v, char out[VERDICT_LINE]);
/* 1: read; 0: none; why (may be NULL, VERDICT_LINE) says for what reason a stored one is void, ""
 * if there is none. */
int verdict_read(struct verdict *v, const char *path, const struct verdict_keys *k, char *why);
/* ERR_IO */
int verdict_write(const struct verdict *v, const char *path, const struct verdict_keys *k,
                  struct error *e);

#endif
