/* Where every block of the model currently is, and its gradual move to where the plan wants it: a
 * little at each safe point between two tokens, so that the answer never waits for the whole move.
 * Owner: the engine. Engine thread only; a step may allocate inside the devices.
 *
 * Two plans: the requested one (kept here) and the one in effect (the engine's, which assigns jobs;
 * changed only in residency_step and residency_lost, block by block). A block switches device only
 * when it is resident on the new one: an expert and the head once their weights are there, an
 * attention block once its weights and all its KV rows are. It is dropped from the old device right
 * after the switch, which frees its memory. The CPU (device 0) always holds all weights: experts
 * and the head move back to it at once.
 *
 * Prompts may have a plan of their own, requested and in effect likewise. Then a device holds the
 * blocks that either plan has there, once: a block is dropped when neither has it there any more. A
 * layer's rows are kept where the plan for tokens wants them; the prompts' device gets those it
 * lacks when a pass needs them (engine/run/pass/forward.h), and gives up a block only after the
 * rows that it alone has were copied. */
#ifndef ENGINE_PLACEMENT_RESIDENCY_H
#define ENGINE_PLACEMENT_RESIDENCY_H

#include "engine/device/device.h"
#include "engine/placement/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESIDENCY_CHUNK ((uint64_t)4 << 20) /* bytes per block_put or KV copy */

struct residency;

/* The engine's KV rows (engine/run), which tracks their number and which device has them. */
struct residency_kv {
    /* Copies rows of a layer that `device` lacks, about max_bytes of them, and adds the bytes
     * copied to *spent. 1: the device has all rows; 0: call again; negative: failed. */
    int (*step)(void *ctx, int layer, int device, uint64_t max_bytes, uint64_t *spent,
                struct error *e);
    /* The attention block was dropped from a device, and its rows of this layer with it. */
    void (*dropped)(void *ctx, int layer, int device);
    void *ctx;
};

struct residency_status {
    int pending;              /* blocks not moved yet */
    uint64_t pending_bytes;   /* their weights still to be copied */
    uint64_t moved_bytes;     /* weights and KV copied since the start */
    uint64_t switches;        /* blocks that switched device since the start */
    uint64_t longest_step_ns; /* since residency_want */
};

/* Limits of one step; it always does at least one piece of work. 0: no limit. */
struct residency_budget {
    uint64_t bytes, ns;
};

/* devices: the engine's array of n_devices; an entry may be NULL until a plan first needs it, and
 * stays readable as long as r lives. */
int residency_new(struct residency **out, const struct model *model, struct device *const *devices,
                  int n_devices, struct error *e);
/* before the devices are closed: drops every block; accepts NULL */
void residency_free(struct residency *r);

/* Sets the requested plan; p is copied. It must have passed planner_check, and its devices must be
 * open. Unfinished moves of the previous plan are cancelled, half-copied blocks dropped at the next
 * step. Clears the refusals of the previous plan, but not lost devices. ERR_MEMORY: nothing
 * changed. */
int residency_want(struct residency *r, const struct plan *p, struct error *e);
const struct plan *residency_wanted(const struct residency *r);
/* The same for prompts; p NULL: from now on they have the tokens' plan (in_force), as at first. */
int residency_want_prompt(struct residency *r, const struct plan *p, const struct plan *in_force,
                          struct error *e);
/* NULL: that of the tokens. */
const struct plan *residency_wanted_prompt(const struct residency *r);
/* The plan in effect for prompts: in_force if it is that of the tokens. Changed by residency_step
 * and residency_lost only; stays valid as long as r and in_force. */
const struct plan *residency_prompt(const struct residency *r, const struct plan *in_force);

/* Call at the safe point. 1: settled, the requested plan (except refused blocks) is in effect; 0:
 * more to do; negative: a device refused a block, see e: both plans are consistent, that device
 * gets no further blocks until the next residency_want (it keeps those it runs), and the answer
 * continues: call again. */
int residency_step(struct residency *r, struct plan *in_force, const struct residency_kv *kv,
                   struct residency_budget budget, struct error *e);
/* The device is lost: moves all its blocks to the CPU in the plan in effect at once, and never uses
 * it again. The caller handles its KV rows. */
void residency_lost(struct residency *r, struct plan *in_force, int device);
struct residency_status residency_status(const struct residency *r, const struct plan *in_force);

/* Whether the block exists and the device can run it (every matrix of it, and together). */
bool residency_supports(const struct device *d, const struct model *m, struct block_id id);

#endif
