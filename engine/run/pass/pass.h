/* What a pass works on: the plan, the rows and their activations, the choices of experts. Used
 * through forward.h. Thread: the engine's. */
#ifndef ENGINE_RUN_PASS_H
#define ENGINE_RUN_PASS_H

#include "engine/placement/bandwidth.h"
#include "engine/placement/plan.h"
#include "engine/run/pass/audit.h"
#include "engine/run/state/device_slot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FORWARD_DEFERRED 16    /* experts a layer can defer */
#define FORWARD_MICROBATCHES 4 /* groups of rows of a prompt's pass, at most */

struct kv;
struct trace;

struct forward;
enum tap_point { TAP_BEFORE, TAP_MIXED, TAP_EXPERTS, TAP_AFTER };

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

/* Looks into a pass (lenses): layers are computed one by one and not split, mixers by the CPU,
 * nothing is deferred. The bits stay. */
struct pass_tap {
    /* Before a layer's first operator: f->x. After its mixer: f->x, and f->y, what was added. After
     * its routed and shared experts: f->h, scores, out (not yet weighed), experts, weights. After
     * the layer: f->x, control vectors added. May not allocate. */
    void (*at)(void *ctx, const struct forward *f, enum tap_point where, int layer);
    void *ctx;
    float *scores; /* as attention_job.scores */
    int score_stride;
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
    const struct pass_tap *tap; /* NULL: nobody looks */
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
    int *ids; /* (max_rows): the rows' tokens */
    /* likewise, of their routing; layers that they touch are not fused */
    const struct expert_edits **edits;
    bool edited;
    /* (max_rows): whether somebody reads a row's x behind the last layer, whose experts the CPU
     * leaves out otherwise (never its routing); x is undefined then. partly: some are not wanted;
     * else all are. Set before forward_rows. */
    bool *wanted, partly;
    /* added to x behind its layers, with which fused ones end; NULL: none; the engine's */
    const struct control_vectors *control;
    int *experts; /* (n_layers, rows, used) */
    float *weights;
    /* (n_layers, n_experts): device that last ran the expert; PLAN_NO_DEVICE: never */
    uint8_t *ran_on;

    /* activations, (max_rows, ...) */
    float *x, *x_before, *y, *h; /* hidden each; x_before: x as it was before a fused
                                  * job, or before a mixer (shape_keeps_stream) */
    float *scores;               /* n_experts */
    float *out;                  /* (used, rows, hidden) */
    float *inputs;               /* hparams_beside: of single layers; other streams */
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
    /* The next layer's experts, predicted while this layer's run, or this one's by an early router
     * while its mixer runs: devices that stream experts start to copy theirs. */
    float *guess_h, *guess_scores, *guess_weights;
    int *guess;
    int paging_layer;      /* whose experts are being read, for predicting the next layer's */
    uint8_t *fused_device; /* per layer: the device that runs all of it by its layers slot, or
                              PLAN_NO_DEVICE */
    size_t scratch_bytes;
    /* groups of a pass's rows (microbatch.h), their groups of experts (FORWARD_MICROBATCHES,
     * DEVICE_MAX, n_experts), and their spans, one after the other */
    struct forward *microbatch;
    struct expert_group *microbatch_groups;
    struct span *microbatch_spans;
    int *microbatch_resume;
};

#endif
