/* Audits: now and then a job of a device is computed by the CPU as well, and compared bit for bit:
 * outputs, chosen experts and their weights, and the rows or the state that the job left behind.
 * Not audited are jobs with float weights, which only tests compare, with tolerances (numerics.h,
 * rule 11). Which job is next is random, one in `every` on average, so that no layer is left out.
 * The CPU computes after the device, from inputs that are still there; only recurrent state and
 * the rows before the job's own must be copied before (audit_ready). Thread: the engine's. Owner:
 * struct forward. Buffers are allocated by audit_open, none in a pass. */
#ifndef ENGINE_RUN_AUDIT_H
#define ENGINE_RUN_AUDIT_H

#include "engine/device/device.h"
#include "engine/run/state/device_slot.h"

#include <stdbool.h>
#include <stdint.h>

struct kv;

struct audit {
    int every; /* one job in so many; 0: none */
    const struct model *model;
    struct device_slot *slots; /* the engine's; set before the first pass */
    struct kv *kv;             /* likewise */
    int max_rows;
    uint32_t random;
    bool open;
    bool each; /* for now: every job */
    /* per layer: no float weights in its mixer, in its experts; in the head */
    bool *exact_mixer, *exact_experts, exact_head;
    bool *alone; /* (n_layers) scratch: the CPU had no rows of the layer before the audit */
    /* what the CPU computes: (max_rows, hidden); (used, max_rows) chosen experts; (n_vocab) */
    float *y, *weights, *logits;
    int *experts;
    /* experts: some entries at a time, their inputs (normed, entries, hidden), and outputs */
    float *h, *out;
    void *rows[2]; /* of the device, max_rows; of the CPU, one: of a layer, or its state */
    size_t rows_bytes;
    char found[DEVICE_WHY]; /* the newest difference */
};

/* After every device that is opened; nothing happens if it is open or every is 0. ERR_MEMORY. */
int audit_open(struct audit *a, const struct model *m, struct device_slot *slots, struct kv *kv,
               int max_rows, struct error *e);
void audit_release(struct audit *a);
/* Counts a job of that kind that a device is about to get: true if it is to be audited. layer is
 * ignored for the head. audit_missed: that turned out to be impossible. */
bool audit_due(struct audit *a, int device, enum block_kind kind, int layer);
void audit_missed(struct audit *a, int device);
/* For a job of whole layers: how far it may reach. *due: its first layer is to be audited, alone
 * (last is then first + 1). Counts the layers of the job. */
int audit_reach(struct audit *a, int device, int first, int last, bool *due);
/* Whether none of a device's next n jobs is due; then audit_spared counts one of them, of the
 * mixers or the experts of layers first .. last - 1, or (whole) of both. */
bool audit_spares(struct audit *a, int device, int n);
void audit_spared(struct audit *a, int device, enum block_kind kind, bool whole, int first,
                  int last);
/* Before a layer's mixer runs on a device: copies what the CPU needs to compute the same. false:
 * not possible, or too much (256 MiB). */
bool audit_ready(struct audit *a, int layer, const struct span *spans, int n);
/* After the job, and kv_written: 0 equal, 1 different (a->found says what), negative: the CPU
 * failed, nothing is known. device_y: room for the job's rows, to find out which part of the layer
 * differs. */
int audit_attention(struct audit *a, int device, const struct attention_job *j);
int audit_experts(struct audit *a, int device, const struct experts_job *j);
int audit_layer(struct audit *a, int device, const struct layers_job *j, const float *x_before,
                float *device_y);
int audit_head(struct audit *a, int device, const struct head_job *j);

#endif
