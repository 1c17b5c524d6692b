/* A pass that one device computes alone, all of its layers, while the engine's thread computes
 * other passes on other devices: prompts beside tokens or tokens beside prompts, where their plans
 * have no device in common. The thread looks after it between layers of its own pass (apart_poll),
 * and between passes (apart_step), where failures are handled, since they may change the plan of
 * the other pass. Rows that other devices need are handed over in between (forward.next). Thread:
 * the engine's. Owner: the engine. */
#ifndef ENGINE_RUN_APART_H
#define ENGINE_RUN_APART_H

#include "engine/base/error.h"
#include "engine/run/pass/pass.h"

struct apart {
    struct forward f;     /* its rows; allocated when first needed */
    struct forward *main; /* whose audits count its jobs too */
    int device;           /* 0: no pass is under way */
    int layer, last;      /* the job in flight, if any, or the next one: layer .. last - 1 */
    bool flies;
    uint64_t start, given; /* ns: when the job was begun, and when the device had it */
    int rc;                /* of what has failed */
    struct error error;
};

/* The device that passes of `rows` rows under that plan would have to itself, if the other plan has
 * nothing there and no job needs an audit; 0: none, or the pass would need what only forward_rows
 * does. */
int apart_device(const struct forward *main, const struct plan *plan, const struct plan *other);
/* Allocates, when first called. ERR_MEMORY. Devices are told where the rows of jobs are. */
int apart_open(struct apart *a, struct forward *main, struct error *e);
/* Begins a pass, with the arguments of forward_rows, under that plan, for which apart_device is
 * `device`; next: as of forward_hand_over, whose flags, in a->f.hands_over, the caller has set. A
 * failure, see apart_step, is told there. */
void apart_begin(struct apart *a, int device, const struct plan *plan, const struct plan *next,
                 const struct span *spans, const int *const *ids, int n);
/* Gives the device its next job if it is done with the one before. Neither waits nor fails: may be
 * called between the layers of another pass. */
void apart_poll(struct apart *a);
/* All of it is computed: apart_step will say so, and nothing else. */
bool apart_computed(const struct apart *a);
/* The same between passes; wait: until all is computed. 1: it is, the residual stream is in a->f.x;
 * 0: not yet; negative: failed as forward_rows does, resumes included. Not 0: it is over. */
int apart_step(struct apart *a, bool wait, struct error *e);
/* Waits for the job in flight; the rest is not computed. The rows of the pass are void,
 * and may be computed again (resumes). Nothing, if no pass is under way. */
void apart_drop(struct apart *a);
/* After the devices are closed. */
void apart_release(struct apart *a);

#endif
