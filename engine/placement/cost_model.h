/* What planners need to know about a model and the devices at hand: block sizes, what each device
 * can run and hold, what its jobs cost, and the stored verdict of auto. Owner: the engine;
 * benchmarks and suggestions make their own. Engine thread only (it runs jobs). */
#ifndef ENGINE_PLACEMENT_COST_MODEL_H
#define ENGINE_PLACEMENT_COST_MODEL_H

#include "engine/device/device.h"
#include "engine/device/state.h"
#include "engine/placement/planner.h"

struct cost_model;

/* The CPU alone at first. An attention block takes room for so many sessions' state (0: one) beside
 * its weights. */
int cost_model_new(struct cost_model **out, const struct model *m, const struct state_config *state,
                   int n_sessions, struct error *e);
void cost_model_free(struct cost_model *s);
/* Takes in device number `index` (its abilities, what it may hold); the newest one beyond 0 becomes
 * the target when there is none yet. */
void cost_model_device(struct cost_model *s, int index, const struct device *d);
/* The same for one that was probed but not opened, for estimates: taken to be able to run
 * everything. */
void cost_model_found(struct cost_model *s, int index, const struct device_info *info);
/* nothing can be placed there any more */
void cost_model_lost(struct cost_model *s, int index);
/* Plain data for planner_run. The caller sets usage, recent, current, move_bytes and costs; the
 * rest belongs to the cost model. */
struct planner_input *cost_model_input(struct cost_model *s);

/* Measures the costs still unknown with a few jobs on the model's own weights. Blocks that neither
 * plan (NULL: none) has on a device are put there and dropped again. KV rows at kv_len, which the
 * next token writes anyway, are scribbled on; with a full context attention is left out. Some
 * tenths of a second a device. */
int cost_model_measure(struct cost_model *s, struct device *const *devices, int n_devices,
                       int kv_len, const struct plan *in_force, const struct plan *wanted,
                       struct error *e);
/* The same in pieces for the pauses between tokens: about budget_ns a call (one job or one chunk of
 * an upload at least; 0: all of it). 1: all is known, 0: call again, negative: given up. kv_len and
 * the plans may have changed since the last call. */
int cost_model_measure_step(struct cost_model *s, struct device *const *devices, int n_devices,
                            int kv_len, const struct plan *in_force, const struct plan *wanted,
                            uint64_t budget_ns, struct error *e);
/* gives a measurement on its way up; before its device is closed */
void cost_model_measure_stop(struct cost_model *s);

/* auto's verdict for this model on the target device and its driver, in cache_dir. load: 1 found
 * (and put into the input), 0 none. */
int cost_model_verdict_load(struct cost_model *s, const char *cache_dir,
                            const struct device *target);
/* loss: what the best plan with the device lost of the CPU's tokens/s, 0.12 = 12 %; negative:
 * gained. ERR_IO. */
int cost_model_verdict_store(struct cost_model *s, const char *cache_dir,
                             const struct device *target, const char *spec, double loss,
                             struct error *e);

#endif
