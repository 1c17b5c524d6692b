/* What a model would do on this machine: its memory's speed, what the model needs of it, the rate
 * that follows, and how much of it each placement would put on a device. Measures for some tenths
 * of a second; devices are probed, not opened. Main thread. */
#ifndef APP_ANALYZE_MACHINE_H
#define APP_ANALYZE_MACHINE_H

#include "app/options/options.h"
#include "app/setup/fit.h"

#define ANALYSIS_PLANS 4
#define ANALYSIS_DEPTH 1024 /* tokens in the context at which a rate is told */

struct analysis_plan {
    const char *spec; /* as --place takes it */
    uint64_t bytes;   /* weights, KV cache and buffers on the device */
    bool fits;
    char note[PLANNER_NOTE]; /* what stays on the CPU, and why; empty: nothing */
};

struct analysis_machine {
    int threads;
    double bandwidth; /* bytes a second; 0: not known */
    uint64_t available;
    struct error why; /* code 0: the model can be opened here, and all below is known */
    struct fit fit;
    uint64_t token_bytes; /* of weights and KV cache as they lie, behind ANALYSIS_DEPTH tokens */
    double rate;          /* tokens a second that the memory allows; 0: not known */
    bool in_cache;        /* it lies in the processor's cache: memory does not bound it */
    /* "opencl:0 (name)", empty: none is here */
    char device[200];
    uint64_t device_memory;
    bool device_shares; /* its memory is the host's */
    int n_plans;
    struct analysis_plan plans[ANALYSIS_PLANS];
};

/* Of the model at `path` with the options' settings. A model that cannot be opened leaves `why`.
 * ERR_USAGE, ERR_MEMORY: settings that no model could have. */
int analysis_measure(struct analysis_machine *out, const struct options *o, const char *path,
                     struct error *e);

#endif
