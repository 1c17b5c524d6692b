/* One pass of some rows (tokens) through the layers, each block on the device that the placement in force names: attention, residual,
 * route on the host, rows grouped by expert, expert jobs to every device (asynchronous ones first, the CPU meanwhile), wait, combination
 * in routing order. A device that fails costs its job a second run on the CPU, never a token.
 * Thread: the engine's. Owner: the engine. Buffers are taken at init: a pass allocates nothing. */
#ifndef ENGINE_RUN_FORWARD_H
#define ENGINE_RUN_FORWARD_H

#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/placement/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace;

/* An opened device and what the engine knows of it. Slot 0 is the CPU. */
struct device_slot {
    const struct device_ops *ops;
    struct device *device;
    struct device_info info;
    int failures;
    bool lost;                   /* failed twice: gets no more jobs */
    int *kv_valid;               /* per layer: rows 0 .. kv_valid - 1 of its cache are those of the session */
    /* What single jobs cost here, for planners: sums over decode passes (one row) */
    struct { uint64_t ns, jobs; } attention, expert, head;
};

struct forward_hooks {
    /* Before every layer, for cancel (non-zero ends the pass with ERR_CANCELLED) and progress; the guard is disarmed. */
    int (*before_layer)(void *ctx, int layer);
    void (*notice)(void *ctx, const char *line);
    void *ctx;
};

struct forward {
    const struct model *model;
    struct device_slot *slots;   /* n_devices of DEVICE_MAX, the engine's */
    int n_devices, max_rows;
    enum kv_type kv_k, kv_v;
    struct forward_hooks hooks;
    struct trace *trace;         /* NULL: none */
    struct plan *in_force;       /* what runs where now; changed block by block between passes: call forward_placed after */
    bool kv_lost;                /* the pass failed because cached rows died with a device: prefill the session again */

    /* results of the newest pass */
    int rows, pos;
    int *experts;                /* (n_layers, rows, used) */
    float *weights;
    uint8_t *ran_on;             /* (n_layers, n_experts): device that ran the expert last; 255: never */

    /* activations, (max_rows, ...) */
    float *x, *saved, *y, *h;    /* hidden each */
    float *scores;               /* n_experts */
    float *out;                  /* (used, rows, hidden) */
    int *row, *slot;             /* rows * used entries, sorted by expert */
    int *first;                  /* n_experts + 1 */
    struct expert_group *groups; /* (DEVICE_MAX, n_experts) */
    int n_groups[DEVICE_MAX];
    uint8_t *whole;              /* per layer: the device that runs all of it by its layers slot, or 255 */
    void *staging;               /* KV rows on their way between devices */
    int staging_rows;
    size_t scratch_bytes;
};

int forward_init(struct forward *f, const struct model *m, struct device_slot *slots, int n_devices, int max_rows,
                 enum kv_type kv_k, enum kv_type kv_v, struct error *e);
void forward_release(struct forward *f);
/* After in_force, the list of devices or a device's state changed. */
void forward_placed(struct forward *f);
/* The rows ids stand at pos .. pos + rows - 1; every row before pos must be valid on some device. Leaves the residual stream in f->x.
 * ERR_CANCELLED, ERR_DEVICE (see kv_lost), ERR_MODEL. */
int forward_rows(struct forward *f, const int *ids, int rows, int pos, struct error *e);
/* Final norm and head of rows first .. first + rows - 1 of the newest pass. logits: (rows, n_vocab). */
int forward_head(struct forward *f, int first, int rows, float *logits, struct error *e);

/* Bytes of one token's rows in one layer's cache. */
size_t forward_kv_row_bytes(const struct forward *f);
/* Makes rows 0 .. pos - 1 of a layer valid on a device, copying at most max_bytes. 1: they are, 0: call again, negative: failed. */
int forward_kv_step(struct forward *f, int layer, int device, int pos, size_t max_bytes, struct error *e);
/* The session ends at pos: later rows are void everywhere. */
void forward_kv_cut(struct forward *f, int pos);
/* Takes a device out of use: its blocks run on the CPU from the next pass on. */
void forward_device_lost(struct forward *f, int device);

#endif
