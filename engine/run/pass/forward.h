/* One pass of some rows (tokens) of some sessions through the layers, each block on the device that
 * the current placement names: attention, residual, routing on the host, rows grouped by expert,
 * expert jobs to every device (asynchronous ones first, the CPU meanwhile), wait, combination in
 * routing order. A job that fails on a device is run again on the CPU; if the device's cached rows
 * were lost too, those are recomputed (resume_at), and the answer continues. Thread: the engine's.
 * Owner: the engine. Buffers are allocated at init: a pass allocates nothing. */
#ifndef ENGINE_RUN_FORWARD_H
#define ENGINE_RUN_FORWARD_H

#include "engine/base/error.h"
#include "engine/run/pass/pass.h"

#include <stddef.h>

int forward_init(struct forward *f, const struct model *m, struct device_slot *slots, struct kv *kv,
                 int max_rows, struct error *e);
/* Bytes that forward_init would allocate. */
size_t forward_footprint(const struct hparams *hp, int max_rows);
/* The part of it that stays untouched while one device computes whole layers: without a placement,
 * experts on disk, or a trace. */
size_t forward_apart_footprint(const struct hparams *hp, int max_rows);
void forward_release(struct forward *f);
/* Tells a device that has host_rows where the rows of jobs are. */
void forward_offer_rows(const struct forward *f, const struct device_slot *s);
/* Sets the plan for the next passes (kept by pointer), and the number of open slots; call it again
 * after every change of its contents. */
void forward_placed(struct forward *f, const struct plan *plan, int n_devices);
/* For the next pass; NULL: nothing is handed over. The caller sets forward.hands_over. */
void forward_hand_over(struct forward *f, const struct plan *next);
/* One pass of n spans (copied), ids[i] the tokens of span i, together at most max_rows rows. Cache
 * rows that a layer's device lacks are copied to it first. states: for the MTP block, the hidden
 * states (rows, hparams_state_values) that each span's tokens are joined with; else unused. Leaves
 * the residual stream of the wanted rows in f->x. ERR_CANCELLED, ERR_DEVICE (see resumes). */
int forward_rows(struct forward *f, const struct span *spans, const int *const *ids,
                 const float *const *states, int n, struct error *e);
/* Final norm and head of rows first .. first + rows - 1 of the newest pass. logits: (rows,
 * n_vocab). */
int forward_head(struct forward *f, int first, int rows, float *logits, struct error *e);
/* Likewise, for external hidden states, (rows, hidden), owned by the caller. strengths: per row;
 * see struct span. */
int forward_head_at(struct forward *f, const float *x, const float *const *strengths, int rows,
                    float *logits, struct error *e);
/* Likewise, for n of its rows, in ascending order. */
int forward_head_of(struct forward *f, const int *rows, int n, float *logits, struct error *e);

#endif
