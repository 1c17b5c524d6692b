/* Will it fit? The exact needs of a model at chosen settings against what is free, before a weight
 * byte is read. Any thread. */
#ifndef APP_SETUP_FIT_H
#define APP_SETUP_FIT_H

#include "engine/placement/planner.h"
#include "engine/run/engine.h"

#include <stdio.h>

struct fit {
    struct model_footprint weights;
    uint64_t kv, scratch; /* at .context and .ubatch */
    /* what this process holds: of total, but no part of what must be free */
    uint64_t program;
    /* of weights.mapped, rows of tables that no context asks for; counted where experts come from
     * the disk, which may have that memory: no part of total */
    uint64_t untouched;
    uint64_t adapters; /* A and B of --lora; 0: none */
    uint64_t draft;    /* weights, KV and scratch of the model that drafts (-md); 0: none */
    uint64_t mtp;      /* the same of the file's block that predicts further tokens; 0: none */
    uint64_t heads;    /* Medusa heads; 0: none */
    /* code, stacks and small tables that computing alone touches: measured, alike for all models */
    uint64_t computing;
    uint64_t total;
    uint64_t available; /* memory that can be had without swapping; UINT64_MAX: unknown */
    int context, ubatch, context_max, sessions;
    /* layers of which a window shows so little that they keep a ring, the most tokens of these, and
     * the part of scratch that copies of rings and recurrent state take */
    int ring_layers, ring_room;
    uint64_t copies;
    /* of scratch, what no page is touched of as long as all layers are the CPU's alone: no part of
     * total */
    uint64_t apart;
    enum dtype type;
    /* oneDNN takes memory of its own, which nobody can tell before (--float-gemm onednn) */
    bool library;
    char name[128];
    /* What a placement beyond the CPU puts on the device; "" : none asked for, or no device. */
    char device[200], device_note[PLANNER_NOTE];
    /* weights (and those of them used in place), KV, scratch, staging, passing experts */
    struct device_stats on_device;
    uint64_t device_bytes, device_memory;
    /* its memory is the host's: what is used in place is not counted twice in total */
    bool device_shares;
};

/* Bytes that can be had without swapping, the limit of a container honoured; UINT64_MAX: unknown.
 */
uint64_t fit_available(void);
/* Metadata and shapes of the model that c names: *m belongs to the caller. ERR_MODEL, ERR_IO when
 * it cannot be read. */
int fit_inspect(const struct engine_config *c, struct model **m, struct model_footprint *weights,
                struct error *e);
/* The needs of such a model at these settings: everything but `program`, `draft`, `mtp`,
 * `available` and a device's part; total is without them. ERR_USAGE: settings it cannot have. */
int fit_of_model(const struct engine_config *c, const struct model *m,
                 const struct model_footprint *weights, struct fit *out, struct error *e);
/* Errors of both. fast: without the vocabulary, which is loaded to be weighed: for the verdict. */
int fit_measure(const struct engine_config *c, struct fit *out, struct error *e);
int fit_measure_fast(const struct engine_config *c, struct fit *out, struct error *e);
bool fit_fits(const struct fit *f);
/* Of what is needed, what is not held yet. */
uint64_t fit_needed(const struct fit *f);
void fit_print(const struct fit *f, FILE *out);
/* After fit_measure: fills the device's part for a placement (a strategy or a plan file, as --place
 * takes it). Devices are probed, not opened; measured costs are not at hand, so `balanced` is shown
 * as if all jobs cost the same. ERR_USAGE for a wrong strategy. */
int fit_measure_device(const struct engine_config *c, const char *place, struct fit *out,
                       struct error *e);

#endif
