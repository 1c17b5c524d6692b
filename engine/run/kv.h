/* Which device has which rows of the sessions' KV caches, and copies between them. Rows once
 * written for a session never change, so a row counts as valid wherever it was computed or copied,
 * until the session is cut before it. Thread: the engine's. Owner: the engine. */
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
    /* n_sessions of (DEVICE_MAX, n_layers): leading rows that are valid there; NULL: no session */
    int **valid;
    int n_sessions;
    void *staging;     /* rows on their way */
    size_t *row_bytes; /* n_layers: one token in the exchange layout; 0: the layer keeps no rows */
};

int kv_init(struct kv *kv, const struct model *m, struct device_slot *slots, enum kv_type k,
            enum kv_type v, struct error *e);
void kv_release(struct kv *kv);
/* The list of a session's rows, empty; ERR_MEMORY. */
int kv_open(struct kv *kv, int session, struct error *e);
void kv_close(struct kv *kv, int session);
int kv_valid(const struct kv *kv, int session, int layer, int device);
/* The session ends at pos: later rows are void everywhere. */
void kv_cut(struct kv *kv, int session, int pos);
/* A job wrote rows pos .. pos + rows - 1 of a layer on a device. */
void kv_written(struct kv *kv, int session, int layer, int device, int pos, int rows);
/* A device gave a layer's rows up, every session's. */
void kv_dropped(struct kv *kv, int layer, int device);
/* Brings rows 0 .. pos - 1 of a layer to a device, about max_bytes a call, and adds what was copied
 * to *spent (may be NULL). 1: they are there, 0: call again, negative: failed (ERR_DEVICE, also
 * when no device has them). */
int kv_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t max_bytes,
            uint64_t *spent, struct error *e);

#endif
