/* The planners' data about a model and the devices: block sizes, what each device can run and hold,
 * the cost of its jobs, and the stored verdict of auto. Owner: the engine; benchmarks and
 * suggestions make their own. Engine thread only (it runs jobs). */
#ifndef ENGINE_PLACEMENT_COST_MODEL_H
#define ENGINE_PLACEMENT_COST_MODEL_H

#include "engine/device/device.h"
#include "engine/device/state.h"
#include "engine/placement/planner.h"

/* Rows of a prompt's job that is measured, at most: enough for the kernels that read a weight once
 */
#define COST_MODEL_ROWS 256

struct cost_model;

/* With the CPU only at first. An attention block's size includes the state of n sessions (0:
 * one). */
int cost_model_new(struct cost_model **out, const struct model *m, const struct state_config *state,
                   int n_sessions, struct error *e);
void cost_model_free(struct cost_model *s);
/* Adds device number `index` (its abilities and memory budget); the first one beyond 0 becomes the
 * target, those after it are what strategies fill next. */
void cost_model_device(struct cost_model *s, int index, const struct device *d);
/* The same for one that was probed but not opened, for estimates: assumed to run everything. */
void cost_model_found(struct cost_model *s, int index, const struct device_info *info);
/* marks a device as unusable for placement */
void cost_model_lost(struct cost_model *s, int index);
/* Plain data for planner_run. The caller sets usage, recent, current, move_bytes and costs; the
 * rest belongs to the cost model. */
struct planner_input *cost_model_input(struct cost_model *s);

/* The plans of an engine by phase: blocks that they have on a device. NULL: none, or the tokens'.
 */
struct cost_model_plans {
    const struct plan *in_force[PLAN_PHASES], *wanted[PLAN_PHASES];
};

/* Measures the missing costs with a few jobs on the model's own weights. Blocks that no plan
 * has on a device are uploaded and dropped again. KV rows at kv_len, which the next
 * token overwrites anyway, are overwritten; with a full context attention is not measured. Takes
 * some tenths of a second per device. */
int cost_model_measure(struct cost_model *s, struct device *const *devices, int n_devices,
                       int kv_len, const struct cost_model_plans *plans, struct error *e);
/* The same in pieces, for the pauses between tokens: about budget_ns per call (at least one job or
 * one chunk of an upload; 0: all of it). 1: complete, 0: call again, negative: failed. kv_len and
 * the plans may have changed since the last call. */
int cost_model_measure_step(struct cost_model *s, struct device *const *devices, int n_devices,
                            int kv_len, const struct cost_model_plans *plans, uint64_t budget_ns,
                            struct error *e);
/* aborts a measurement in progress; call before its device is closed */
void cost_model_measure_stop(struct cost_model *s);

struct verdict;
struct verdict_keys;
/* The costs for this model on a device (costs.h), in cache_dir (NULL: none). load: fills those that
 * are missing; 1 found, 0 none. store: the input's of now. */
int cost_model_costs_load(struct cost_model *s, int index, const char *cache_dir,
                          const struct device *dev, const struct verdict_keys *k);
/* ERR_IO: they are measured again by the next run. */
int cost_model_costs_store(struct cost_model *s, int index, const char *cache_dir,
                           const struct device *dev, const struct verdict_keys *k, struct error *e);

/* auto's verdict for this model on the devices of the input's numbers (verdict.h), in cache_dir.
 * load: 1 found, 0 none; why: as in verdict_read. */
int cost_model_verdict_load(struct cost_model *s, const char *cache_dir,
                            struct device *const *devices, const struct verdict_keys *k, char *why);
/* ERR_IO: it is kept for this run only. */
int cost_model_verdict_store(struct cost_model *s, const char *cache_dir,
                             struct device *const *devices, const struct verdict_keys *k,
                             const struct verdict *v, struct error *e);
/* Sets the input's verdict for a phase; NULL: there is none. */
const struct verdict *cost_model_verdict(struct cost_model *s, enum plan_phase phase);

#endif
