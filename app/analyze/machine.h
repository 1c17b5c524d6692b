/* How a model would run on this machine: memory bandwidth, the model's memory needs, the decode
 * rate that follows, and how much of it each placement would put on a device. Measures for some
 * tenths of a second; devices are probed, not opened. Main thread. */
#ifndef APP_ANALYZE_MACHINE_H
#define APP_ANALYZE_MACHINE_H

#include "app/options/options.h"
#include "app/setup/fit.h"

#define ANALYSIS_PLANS 4
#define ANALYSIS_DEPTH 1024 /* tokens in the context for which the rate is computed */

struct analysis_plan {
    const char *spec; /* in the form of --place */
    uint64_t bytes;   /* weights, KV cache and buffers on the device */
    bool fits;
    char note[PLANNER_NOTE]; /* what stays on the CPU, and why; empty: nothing */
};

struct analysis_machine {
    int threads;
    double bandwidth; /* bytes/s; 0: unknown */
    uint64_t available;
    struct error why; /* code 0: the model can be opened here, and everything below is valid */
    struct fit fit;
    uint64_t token_bytes; /* of weights and KV cache in their types, ANALYSIS_DEPTH tokens */
    double rate;          /* tokens/s that the memory bandwidth allows; 0: unknown */
    bool in_cache;        /* it fits in the CPU cache: memory is not the limit */
    /* "opencl:0 (name)", empty: there is none */
    char device[200];
    uint64_t device_memory;
    bool device_shares; /* it shares the host's memory */
    int n_plans;
    struct analysis_plan plans[ANALYSIS_PLANS];
};

/* For the model at `path` with the options' settings. `why`: the model cannot be opened. ERR_USAGE,
 * ERR_MEMORY: settings that no model can have. */
int analysis_measure(struct analysis_machine *out, const struct options *o, const char *path,
                     struct error *e);

#endif
