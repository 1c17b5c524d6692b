/* Will it fit? The exact needs of a model at chosen settings against what is free, before a weight
 * byte is read. Any thread but for fit_require, which prints: the main thread. */
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
    uint64_t total;
    uint64_t available; /* memory that can be had without swapping; UINT64_MAX: unknown */
    int context, ubatch, context_max, sessions;
    /* layers of which a window shows so little that they keep a ring, the most tokens of these, and
     * the part of scratch that copies of rings and recurrent state take */
    int ring_layers, ring_room;
    uint64_t copies;
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
/* ERR_MODEL, ERR_IO when the model cannot be read. */
int fit_measure(const struct engine_config *c, struct fit *out, struct error *e);
bool fit_fits(const struct fit *f);
void fit_print(const struct fit *f, FILE *out);
/* After fit_measure: fills the device's part for a placement (a strategy or a plan file, as --place
 * takes it). Devices are probed, not opened; measured costs are not at hand, so `balanced` is shown
 * as if all jobs cost the same. ERR_USAGE for a wrong strategy. */
int fit_measure_device(const struct engine_config *c, const char *place, struct fit *out,
                       struct error *e);
/* The nearest settings that fit, as flags ("-c 2048", "--dtype q4_0 -c 1024"); empty: none found.
 */
void fit_suggest(const struct engine_config *c, const struct fit *f, char *out, size_t size);
/* ERR_FIT: what is missing and, where there is one, the remedy. */
int fit_refuse(const struct engine_config *c, const struct fit *f, struct error *e);
/* What loading calls first: ERR_FIT, with the table on stderr, when it does not fit and force is
 * not given. */
int fit_require(const struct engine_config *c, bool force, struct error *e);

#endif
