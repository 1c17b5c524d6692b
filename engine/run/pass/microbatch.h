/* A prompt's pass in several groups of rows (micro-batches) that are in different layers at the
 * same time: while a device computes a block of one, the CPU computes what the others have ready.
 * Rows of a session stay in order: a later group enters a layer after the earlier one has left its
 * mixer, so that keys and values, and recurrent state, come as they would in one group. The sums of
 * a row do not depend on the rows beside it (numerics.h): same bits. As the pipelines of GPipe
 * (Huang et al., 2019), without a fixed schedule: whoever can feed an idle device goes first, else
 * the oldest; the CPU's experts fill the time in between. Where the plan lends (plan.h) the CPU
 * takes experts of a device that would finish after it: neither waits long, whatever the routing
 * of a layer. Thread: the engine's; it waits only when no group can go on. */
#ifndef ENGINE_RUN_MICROBATCH_H
#define ENGINE_RUN_MICROBATCH_H

#include "engine/base/error.h"
#include "engine/run/pass/pass.h"

#define MICROBATCH_ROWS 64 /* at least, of each */

/* Into how many groups the pass that forward_rows has begun is split; 1: none. */
int microbatch_count(struct forward *f);
/* Runs all layers of it. A failure of a device makes all of the pass's rows void: ERR_DEVICE with
 * forward.resumes set, for another pass. */
int microbatch_layers(struct forward *f, int n, struct error *e);

#endif
