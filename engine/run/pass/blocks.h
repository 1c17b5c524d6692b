/* The steps of a layer that a pass is made of: forward.c, experts.c and head.c have them, jobs.c
 * what all have in common. forward.c takes one after the other, microbatch.c those of several
 * groups of rows in turn, apart.c leaves whole layers to a device. Inside engine/run/pass. Thread:
 * the engine's. */
#ifndef ENGINE_RUN_BLOCKS_H
#define ENGINE_RUN_BLOCKS_H

#include "engine/base/error.h"
#include "engine/run/pass/pass.h"

/* What forward_rows begins with: sets the spans of the pass and embeds their tokens. */
int blocks_begin(struct forward *f, const struct span *spans, const int *const *ids,
                 const float *const *states, int n, struct error *e);
/* Most normed rows per token for any layer's experts. */
int blocks_normed_rows(const struct hparams *hp);
/* See forward.next: layers whose rows of this pass are all there. None of the devices concerned has
 * a job in flight. */
void blocks_hand_over(struct forward *f, int first, int last);
/* Copies the rows of a layer before those of this pass to a device. If no device has them any more
 * they are recomputed. */
int blocks_kv_ensure(struct forward *f, int layer, int device, struct error *e);
/* A job of a layer's mixer there has written its rows; or has failed. */
void blocks_rows_written(struct forward *f, int layer, int device);
void blocks_state_void(struct forward *f, int layer, int device);
struct attention_job blocks_attention_job(struct forward *f, int layer);
struct layers_job blocks_layers_job(struct forward *f, int first, int last);
/* The device ran those layers with all their experts. */
void blocks_layers_ran(struct forward *f, int first, int last, int device);
/* f->y to the residual stream, or streams. */
int blocks_add_mixer(struct forward *f, int layer, struct error *e);
/* Routing on the host, then one group of rows an expert, listed under its device. A layer without a
 * feed-forward: nobody is chosen, no group is left. */
int blocks_route(struct forward *f, int layer, struct error *e);
/* What the groups of a device ask of it. */
struct experts_job blocks_experts_job(struct forward *f, int layer, int device);
/* Takes bucket tokens for the weights that a device will read from shared memory. */
void blocks_share_memory(struct forward *f, int layer, int device);
/* The CPU computes n groups, whosesoever they are. Not where experts may be missing in memory. */
int blocks_cpu_experts(struct forward *f, int layer, const struct expert_group *groups, int n,
                       struct error *e);
int blocks_combine(struct forward *f, int layer, struct error *e);
/* Rows of the pass that want an expert, one group an expert, listed under its device. */
void blocks_group_rows(struct forward *f, int layer);
/* Every device's groups, all at once. */
int blocks_run_experts(struct forward *f, int layer, struct error *e);
/* While a layer's mixer computes: reads or uploads its experts, if they are known by then. */
void blocks_fetch_known(struct forward *f, int layer);
/* Experts that are computed beside the next layer's attention (forward.defer): which of the CPU's
 * groups with the weights of a row; their outputs, from f->h, which is valid until the next
 * routing; their sum into f->x. */
void blocks_choose_deferred(struct forward *f, int layer, const float *weights);
int blocks_run_deferred(struct forward *f, struct error *e);
void blocks_add_deferred(struct forward *f);
/* Whether a device computes the whole layer in one job. */
bool blocks_fuse(const struct device_slot *s, int layer);
/* Whether experts of the layer may be missing in memory when the CPU needs them. */
bool blocks_may_miss(const struct forward *f, int layer);
/* Of the pass's rows; NULL: no adapter applies to any. */
const float *const *blocks_strengths(const struct forward *f);
/* What a job of one row took: ns for so many blocks. */
void blocks_count_cost(struct forward *f, struct job_cost *c, uint64_t ns, int blocks);
/* A device's job of one row took ns from its first launch to the end of the wait, of which the host
 * launched for launch_ns. busy: blocks_busy_ns before it. */
void blocks_count_handoff(struct forward *f, int d, uint64_t ns, uint64_t launch_ns, uint64_t busy);
/* The result of an audit; ERR_DEVICE: continue from resume_at. */
int blocks_audited(struct forward *f, int device, int result, struct error *e);
/* ns that the device's kernels have run since it was opened; 0: it does not tell. */
uint64_t blocks_busy_ns(const struct device_slot *s);
/* A job of a device was done: is it slow? Times and units as in struct slow_job; the CPU's never
 * are. */
void blocks_watch(struct forward *f, int device, enum slow_kind kind, int units, uint64_t start,
                  uint64_t end, uint64_t waited);
int blocks_wait(struct device_slot *s, int rc, struct error *e);
/* A job of a device other than the CPU failed: reports it, and disables the device the second time.
 * 0: run the job on the CPU; ERR_DEVICE: continue from resume_at. */
int blocks_failed(struct forward *f, int device, const char *what, struct error *e);

#endif
