/* Where every block of the model really lies, and how it gets to where a plan wants it: a little at
 * each safe point between two tokens, so that the answer never waits for the whole move. Owner: the
 * engine. Engine thread only; a step may allocate inside the devices.
 *
 * Two plans: the one wanted (kept here) and the one in force (the engine's, by which jobs are
 * handed out; changed only in residency_step and residency_lost, block by block). A block changes
 * sides only when it is resident on the other side: an expert and the head once their weights are
 * there, an attention block once its weights and all its KV rows are. What left a device is dropped
 * right after the switch, so memory returns to what it was. The CPU (device 0) holds all weights
 * always: experts and head go home at once. */
#ifndef ENGINE_PLACEMENT_RESIDENCY_H
#define ENGINE_PLACEMENT_RESIDENCY_H

#include "engine/device/device.h"
#include "engine/placement/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESIDENCY_CHUNK ((uint64_t)4 << 20) /* bytes asked of one block_put or KV copy */

struct residency;

/* The engine's KV rows (engine/run): it knows how many there are and which side has which. */
struct residency_kv {
    /* Copies rows of a layer that `device` lacks, about max_bytes of them, and adds what it copied
     * to *spent. 1: the device has all rows; 0: call again; negative: failed. */
    int (*step)(void *ctx, int layer, int device, uint64_t max_bytes, uint64_t *spent,
                struct error *e);
    /* The attention block was dropped from a device, and its rows of this layer with it. */
    void (*dropped)(void *ctx, int layer, int device);
    void *ctx;
};

struct residency_status {
    int pending;              /* blocks not yet where they are wanted */
    uint64_t pending_bytes;   /* weights still to be copied for them */
    uint64_t moved_bytes;     /* weights and KV copied since the start */
    uint64_t switches;        /* blocks that changed sides since the start */
    uint64_t longest_step_ns; /* since residency_want */
};

/* What one step may spend; it does at least one piece of work. 0: no limit. */
struct residency_budget {
    uint64_t bytes, ns;
};

/* devices: the engine's array of n_devices; an entry may be NULL until a plan first wants it, and
 * stays readable as long as r lives. */
int residency_new(struct residency **out, const struct model *model, struct device *const *devices,
                  int n_devices, struct error *e);
/* before the devices are closed: drops every block; accepts NULL */
void residency_free(struct residency *r);

/* Takes a copy. The plan must have passed planner_check, and the devices it names must be open.
 * Moves not yet done for the plan before are given up, half-copied blocks dropped at the next step.
 * Forgets refusals of the plan before, not lost devices. ERR_MEMORY: nothing changed. */
int residency_want(struct residency *r, const struct plan *p, struct error *e);
const struct plan *residency_wanted(const struct residency *r);

/* At the safe point. 1: settled, what is wanted (and was not refused) is in force; 0: more to do;
 * negative: a device refused a block, e says which and why: both plans are consistent, that device
 * is asked for nothing more until the next residency_want (what it already runs it keeps), and the
 * answer goes on: call again. */
int residency_step(struct residency *r, struct plan *in_force, const struct residency_kv *kv,
                   struct residency_budget budget, struct error *e);
/* The device is gone: everything of it is on the CPU in the plan in force at once, and it is never
 * wanted again. KV rows: the caller's. */
void residency_lost(struct residency *r, struct plan *in_force, int device);
struct residency_status residency_status(const struct residency *r, const struct plan *in_force);

/* Is there such a block, and can the device run it (every matrix of it, and together)? */
bool residency_supports(const struct device *d, const struct model *m, struct block_id id);

#endif
