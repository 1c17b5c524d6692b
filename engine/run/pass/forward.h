/* One pass of some rows (tokens) of some sessions through the layers, each block on the device that
 * the current placement names: attention, residual, routing on the host, rows grouped by expert,
 * expert jobs to every device (asynchronous ones first, the CPU meanwhile), wait, combination in
 * routing order. A job that fails on a device is run again on the CPU; if the device's cached rows
 * were lost too, those are recomputed (resume_at), and the answer continues. Thread: the engine's.
 * Owner: the engine. Buffers are allocated at init: a pass allocates nothing. */
#ifndef ENGINE_RUN_FORWARD_H
#define ENGINE_RUN_FORWARD_H

#include "engine/base/error.h"
#include "engine/placement/bandwidth.h"
#include "engine/placement/plan.h"
#include "engine/run/pass/audit.h"
#include "engine/run/state/device_slot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FORWARD_DEFERRED 16 /* experts a layer can defer */

struct kv;
struct trace;

struct forward_hooks {
    /* Called before every layer, for cancel (non-zero ends the pass with ERR_CANCELLED) and
     * progress; it may allocate (elsewhere in a pass debug builds abort on that: mem_guard_arm). */
    int (*before_layer)(void *ctx, int layer);
    void (*notice)(void *ctx, const char *line);
    /* A device failed for the second time and is disabled. Must remove its blocks from the current
     * plan. */
    void (*device_lost)(void *ctx, int device);
    /* A device computed wrongly, and not all of its jobs before were audited: nothing computed
     * since it was opened can be relied on. Must empty every session, whose tokens are then
     * computed again. Returns how many. */
    int (*distrust)(void *ctx, int device);
    void *ctx;
};

struct forward {
    const struct model *model;
    struct device_slot *slots; /* n_devices of DEVICE_MAX, the engine's */
    int n_devices, max_rows;
    struct kv *kv; /* the engine's */
    struct forward_hooks hooks;
    struct audit audit;      /* audit.every is the engine's to set */
    struct trace *trace;     /* NULL: none */
    const struct plan *plan; /* in effect; set by forward_placed */
    /* limits experts that run in parallel with a device sharing the memory; NULL: no limit */
    struct bandwidth *bandwidth;
    /* The pass ends prompts, and their tokens have another plan (NULL: no): after each layer its
     * rows of the spans with hands_over set are copied to that plan's device, from the first row on
     * that it lacks, so once. The copies wait for the device and it for them: they do not run
     * beside its arithmetic. What fails, or is not copied here, is copied by the next pass that
     * needs it. Set by forward_hand_over. */
    const struct plan *next;
    bool *hands_over;                      /* (max_rows), by span */
    uint64_t handover_ns, handover_bytes;  /* of the newest such pass */
    const struct imposed_routing *imposed; /* NULL: the router chooses */
    /* (n_layers, rows, n_experts): where every layer's router scores of the newest pass go; layers
     * are not fused then. NULL: nowhere */
    float *kept_scores;
    /* After ERR_DEVICE: whether recomputing helps, and how many leading rows of each span's session
     * are still valid. */
    bool resumes;
    int *resume_at; /* (max_rows) */

    /* the newest pass: its rows are those of its spans, one after the other; and its results */
    struct span *spans; /* (max_rows) */
    int n_spans, rows;
    /* per row, and per row of the head: its span's; adapted: some are not NULL */
    const float **strengths, **head_strengths;
    bool adapted;
    int *experts; /* (n_layers, rows, used) */
    float *weights;
    /* (n_layers, n_experts): device that last ran the expert; PLAN_NO_DEVICE: never */
    uint8_t *ran_on;

    /* activations, (max_rows, ...) */
    float *x, *x_before, *y, *h; /* hidden each; x_before: x as it was before a fused job */
    float *scores;               /* n_experts */
    float *out;                  /* (used, rows, hidden) */
    int *row, *slot;             /* rows * used entries, sorted by expert */
    int *first_entry;            /* n_experts + 1: of each expert in row and slot */
    struct expert_group *groups; /* (DEVICE_MAX, n_experts) */
    int n_groups[DEVICE_MAX];
    /* Deferred experts (lossy, off by default): of a single row's experts on the CPU, up to `defer`
     * of least weight are computed while the next layer's attention runs on its device, and added
     * after it. As in KTransformers' expert deferral. */
    int defer;
    /* Lossy, 0: off: routed experts of a row with less weight are skipped, except the best one.
     * Layers are not fused then. Set before forward_placed. */
    float least;
    struct {
        int n, layer, row[FORWARD_DEFERRED], slot[FORWARD_DEFERRED];
        struct expert_group groups[FORWARD_DEFERRED];
        float weights[FORWARD_DEFERRED], *out;
    } deferred;
    /* The next layer's experts, predicted while this layer's run: devices that stream experts start
     * to copy theirs. */
    float *guess_h, *guess_scores, *guess_weights;
    int *guess;
    int paging_layer;      /* whose experts are being read, for predicting the next layer's */
    uint8_t *fused_device; /* per layer: the device that runs all of it by its layers slot, or
                              PLAN_NO_DEVICE */
    size_t scratch_bytes;
};

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
 * states (rows, hidden) that each span's tokens are joined with; else unused. Leaves the residual
 * stream in f->x. ERR_CANCELLED, ERR_DEVICE (see resumes). */
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
