/* Which device has what the sessions' layers keep, and copies between them. Rows once written for a
 * session never change, so a row counts as valid wherever it was computed or copied, until the
 * session is cut before it. Recurrent state stands after some number of tokens, on every device
 * after another one, and is good for what follows there alone; after 0 it needs no copy. Thread:
 * the engine's. Owner: the engine. */
#ifndef ENGINE_RUN_KV_H
#define ENGINE_RUN_KV_H

#include "engine/base/error.h"
#include "engine/device/device.h"

#include <stddef.h>
#include <stdint.h>

struct device_slot;

struct kv {
    struct device_slot *slots; /* the engine's, DEVICE_MAX */
    int n_layers;
    /* n_sessions of (DEVICE_MAX, n_layers): leading rows that are valid there, or the tokens after
     * which recurrent state stands there; NULL: no session */
    int **valid;
    int n_sessions;
    void *staging;     /* rows on their way */
    size_t *row_bytes; /* n_layers: one token in the exchange layout; 0: the layer keeps no rows */
    size_t *fixed_bytes; /* n_layers: of recurrent state; 0: the layer has none */
    size_t all_fixed;    /* of all layers */
};

int kv_init(struct kv *kv, const struct model *m, struct device_slot *slots, enum kv_type k,
            enum kv_type v, struct error *e);
void kv_release(struct kv *kv);
/* The list of a session's rows, empty; ERR_MEMORY. */
int kv_open(struct kv *kv, int session, struct error *e);
void kv_close(struct kv *kv, int session);
int kv_valid(const struct kv *kv, int session, int layer, int device);
/* Whether a layer can go on at pos on a device: rows 0 .. pos - 1 are there, or its state. */
bool kv_there(const struct kv *kv, int session, int layer, int device, int pos);
/* Whether every layer can go on at pos, after copies between devices perhaps. */
bool kv_stands(const struct kv *kv, int session, int pos);
/* Leading rows that some device has of every layer that keeps rows. */
int kv_rows_held(const struct kv *kv, int session);
/* A layer's recurrent state after pos tokens, fixed_bytes, from whichever device has it
 * (ERR_DEVICE: none), and onto the CPU. */
int kv_fixed_read(struct kv *kv, int session, int layer, int pos, void *to, struct error *e);
int kv_fixed_write(struct kv *kv, int session, int layer, int pos, const void *from,
                   struct error *e);
/* The session ends at pos: later rows are void everywhere, and so is state that stands later. */
void kv_cut(struct kv *kv, int session, int pos);
/* Rows 0 .. n - 1 of session `from` become `to`'s too, where every layer's lie on the CPU; what
 * `to` had there is gone. Returns how many: whole pages, or 0 (then nothing has changed). */
int kv_share(struct kv *kv, int from, int to, int n);
/* A job wrote rows pos .. pos + rows - 1 of a layer on a device, or took its state that far. */
void kv_written(struct kv *kv, int session, int layer, int device, int pos, int rows);
/* A job failed: its layer's recurrent state on that device is void. */
void kv_failed(struct kv *kv, int session, int layer, int device);
/* A device gave what a layer keeps up, every session's. */
void kv_dropped(struct kv *kv, int layer, int device);
/* Brings rows 0 .. pos - 1 of a layer, or its state after pos tokens, to a device, about max_bytes
 * a call (state in one piece), and adds what was copied to *spent (may be NULL). 1: they are there,
 * 0: call again, negative: failed (ERR_DEVICE, also when no device has them). */
int kv_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t max_bytes,
            uint64_t *spent, struct error *e);

#endif
