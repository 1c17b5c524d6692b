/* The engine's side of placement, below placement.c (requests, the safe point) and
 * placement_auto.c: what planners decide from, what is kept from run to run, moves, and blocks that
 * a device gives back. Engine thread. */
#ifndef ENGINE_RUN_PLACE_H
#define ENGINE_RUN_PLACE_H

#include "engine/placement/trial.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

/* jobs, and rows of prompts, from which their own times replace those that were measured before */
#define PLACE_LEARNT 16
#define PLACE_LEARNT_ROWS 256

/* ---- inputs.c ---- */

/* The plan requested for a phase. */
const struct plan *place_wanted_of(const struct engine *g, enum plan_phase phase);
bool place_is_balanced(const struct planner_spec *s);
struct cost_model_plans place_plans(const struct engine *g);
/* The planners' input for a phase, of what is known by now. */
void place_input(struct engine *g, enum plan_phase phase, struct planner_input *in);
/* Requests a plan for a phase (NULL: the prompts have the tokens'), unless both together are too
 * much for a device: ERR_USAGE. */
int place_want(struct engine *g, enum plan_phase phase, const struct plan *p, struct error *e);
/* A measurement wrote up to `most` rows behind those of the chat. */
void place_measured(struct engine *g, int most);

/* ---- kept.c: between runs ---- */

/* What jobs cost in the runs before, of devices added since the last call. */
void place_costs_load(struct engine *g);
/* For the next run. A cache that cannot be written is none: it measures again. */
void place_costs_store(struct engine *g);
/* The verdict of this run, or a stored one; NULL: none. */
const struct verdict *place_verdict_seek(struct engine *g);
int place_verdict_store(struct engine *g, const struct verdict *v, struct error *e);

/* ---- moves.c ---- */

/* Blocks and rows one step towards the requested plans. 1: all are there. */
int place_move(struct engine *g, struct residency_budget budget, struct error *e);

/* ---- demote.c ---- */

/* A device is slow, or its jobs find no memory: some blocks go back to the CPU, at first one, and
 * twice as many each time until it is well. What fits stays. */
void place_relieve(struct engine *g, int device, struct error *e);
/* A device was lost: the requested plans, which are without it already, get names that say so. */
void place_rename_demoted(struct engine *g);

#endif
