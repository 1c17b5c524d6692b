/* What a model's jobs cost on the CPU and on one device, kept as a file in the cache directory by
 * model and device: the next run plans by them instead of measuring again. Void with another driver
 * or on another machine, and after COSTS_USES runs: costs of a side that no plan uses would else
 * never be corrected. Plain data; any thread. */
#ifndef ENGINE_PLACEMENT_COSTS_H
#define ENGINE_PLACEMENT_COSTS_H

#include "engine/placement/planner.h"
#include "engine/placement/verdict.h"

#define COSTS_USES 16

/* Fills the costs that the input does not have yet: the CPU's, those of device `index`, and the
 * host's of prompts. 1: read; 0: there is none, or it is void. *uses: runs that have used it. */
int costs_read(struct planner_input *in, int index, const char *path, const struct verdict_keys *k,
               int *uses);
/* ERR_IO */
int costs_write(const struct planner_input *in, int index, const char *path,
                const struct verdict_keys *k, int uses, struct error *e);

#endif
