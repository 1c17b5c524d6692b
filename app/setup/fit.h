/* Does it fit? The exact memory needs of a model at given settings against what is free, before any
 * weight is read. Any thread. */
#ifndef APP_SETUP_FIT_H
#define APP_SETUP_FIT_H

#include "engine/placement/planner.h"
#include "engine/run/engine.h"

#include <stdio.h>

struct fit_device {
    char name[200]; /* "opencl:0 (AMD Radeon 780M)" */
    /* weights (and those used in place), KV, scratch, staging, streamed experts */
    struct device_stats has;
    uint64_t bytes, memory; /* all of these; what the device has */
    bool shares; /* the host's memory: what is used in place is not counted twice in fit.total */
};

struct fit {
    struct model_footprint weights;
    uint64_t kv, scratch; /* at .context and .ubatch */
    /* already held by this process: part of total, but need not be free */
    uint64_t program;
    /* of weights.mapped, rows of tables that no context can use; of n-grams always, of others if
     * experts stay on disk, which may use that memory: not part of total */
    uint64_t untouched;
    uint64_t adapters; /* A and B of --lora; 0: none */
    uint64_t control;  /* directions of --control-vector; 0: none */
    uint64_t draft;    /* weights, KV and scratch of the draft model (-md); 0: none */
    uint64_t mtp;      /* the same for the file's multi-token prediction block; 0: none */
    uint64_t heads;    /* Medusa heads; 0: none */
    /* code, stacks and small tables used only while computing: measured, the same for all models */
    uint64_t computing;
    uint64_t total;
    uint64_t available; /* memory that can be had without swapping; UINT64_MAX: unknown */
    int context, ubatch, context_max, sessions;
    /* layers whose sliding window is so small that they use a ring, the most tokens of these, and
     * the part of scratch for copies of rings and recurrent state */
    int ring_layers, ring_room;
    uint64_t copies;
    /* of scratch, pages never touched while all layers are on the CPU: not part of total */
    uint64_t apart;
    enum dtype type;
    /* oneDNN allocates memory that cannot be predicted (--float-gemm onednn) */
    bool library;
    char name[128];
    /* What a placement puts on devices other than the CPU: n_on of them. 0: none given, or there is
     * no device. */
    struct fit_device on[DEVICE_MAX];
    int n_on;
    char device_note[PLANNER_NOTE];
};

/* Bytes available without swapping, container limits included; UINT64_MAX: unknown. */
uint64_t fit_available(void);
/* Metadata and shapes of the model that c names; *m is owned by the caller. ERR_MODEL, ERR_IO if it
 * cannot be read. */
int fit_inspect(const struct engine_config *c, struct model **m, struct model_footprint *weights,
                struct error *e);
/* The needs of such a model at these settings: everything except `program`, `draft`, `mtp`,
 * `available` and a device's part; total is without them. ERR_USAGE: invalid settings. */
int fit_of_model(const struct engine_config *c, const struct model *m,
                 const struct model_footprint *weights, struct fit *out, struct error *e);
/* Errors of both. fast: without the vocabulary, which must be loaded to be measured: enough for a
 * yes or no. */
int fit_measure(const struct engine_config *c, struct fit *out, struct error *e);
int fit_measure_fast(const struct engine_config *c, struct fit *out, struct error *e);
bool fit_fits(const struct fit *f);
/* The part of total not yet allocated. */
uint64_t fit_needed(const struct fit *f);
void fit_print(const struct fit *f, FILE *out);
/* Whether all of it fits each device. */
bool fit_fits_devices(const struct fit *f);
/* The lines of fit_print about devices. */
void fit_print_devices(const struct fit *f, FILE *out);
/* A line of fit_print. */
void fit_print_row(FILE *out, const char *what, uint64_t bytes, const char *note);
/* fit_devices.c. After fit_measure: fills the devices' part for a placement (a strategy or a plan
 * file, as
 * --place); prompts: what --place-prompt names, NULL: the same. Devices are probed, not opened;
 * measured costs are not available, so `balanced` is computed as if all jobs cost the same.
 * ERR_USAGE for a wrong strategy. */
int fit_measure_device(const struct engine_config *c, const char *place, const char *prompts,
                       struct fit *out, struct error *e);

#endif
