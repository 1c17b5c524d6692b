/* Tracks which device has which part of the sessions' state, and copies it between them. Rows once
 * written for a session never change, so a row is valid wherever it was computed or copied, until
 * the session is truncated before it or newer rows of a ring (engine/device/state.h) replace it. So
 * per layer a device has a range of rows: from the first on, except in rings, where the next token
 * needs only its window. Recurrent state belongs to one number of tokens, which may differ between
 * devices, and can continue only from there; at 0 tokens it needs no copy. A layer that keeps every
 * row may have such state besides (convolved attention): it needs both to continue. Thread: the
 * engine's. Owner: the engine. */
#ifndef ENGINE_RUN_KV_H
#define ENGINE_RUN_KV_H

#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/device/state.h"

#include <stddef.h>
#include <stdint.h>

struct device_slot;

/* Rows that a device uses in place are the CPU's: what is there is said of both at once. */
struct kv {
    struct device_slot *slots; /* the engine's, DEVICE_MAX */
    int n_layers;
    /* n_sessions of (DEVICE_MAX, n_layers): range of valid rows there, and the number of tokens
     * that recurrent state is at; NULL: no session. ahead: number of drafted tokens after `stands`,
     * each of which recurrent state can continue after */
    struct kv_held {
        int begin, end, stands, ahead;
    } * *held;
    int n_sessions;
    void *staging; /* buffer for rows being copied */
    /* n_layers. row_bytes: one token in the exchange layout; 0: the layer keeps no rows.
     * fixed_bytes: of recurrent state; 0: it has none. ring: rows a device keeps, window: rows a
     * token sees, itself included; 0: every row is kept. copy_bytes: of a copy (state.h) */
    struct kv_layer {
        size_t row_bytes, fixed_bytes, copy_bytes;
        int ring, window;
    } * layers;
    size_t all_fixed, all_copies; /* of all layers */
};

int kv_init(struct kv *kv, const struct model *m, struct device_slot *slots,
            const struct state_config *c, struct error *e);
void kv_release(struct kv *kv);
/* Creates the empty entry of a session; ERR_MEMORY. */
int kv_open(struct kv *kv, int session, struct error *e);
void kv_close(struct kv *kv, int session);
/* End of the valid rows on a device, or of recurrent state alone where it stands. */
int kv_valid(const struct kv *kv, int session, int layer, int device);
/* Whether a layer can continue at pos on a device: it has the rows before pos that the next token
 * sees, or the state at pos. */
bool kv_there(const struct kv *kv, int session, int layer, int device, int pos);
/* Whether every layer can continue at pos, possibly after copies between devices. */
bool kv_stands(const struct kv *kv, int session, int pos);
/* Whether copies can be made there: recurrent state is there, without drafted rows. */
bool kv_copies(const struct kv *kv, int session, int pos);
/* Leading rows that some device has for every layer that keeps all of them. */
int kv_rows_held(const struct kv *kv, int session);
/* Reads the copy that a layer needs to continue at pos, copy_bytes: its recurrent state, or the
 * visible rows of its ring; from whichever device has it (ERR_DEVICE: none). kv_copy_write writes
 * it to the CPU. */
int kv_copy_read(struct kv *kv, int session, int layer, int pos, void *to, struct error *e);
int kv_copy_write(struct kv *kv, int session, int layer, int pos, const void *from,
                  struct error *e);
/* Reads n rows of a layer that keeps all of them, from pos on, in the exchange layout (device.h),
 * from whichever device has them; kv_rows_write writes them to the CPU, after copying those before
 * pos there. ERR_DEVICE. */
int kv_rows_read(struct kv *kv, int session, int layer, int pos, int n, void *to, struct error *e);
int kv_rows_write(struct kv *kv, int session, int layer, int pos, int n, const void *from,
                  struct error *e);
/* Whether a device's rows of a layer are the CPU's, in place. */
bool kv_in_place(const struct kv *kv, int layer, int device);
/* Truncates the session at pos: later rows and state are void everywhere. */
void kv_cut(struct kv *kv, int session, int pos);
/* Returns the memory of rows of closed and truncated sessions to the system; bytes. */
uint64_t kv_trim(struct kv *kv);
/* Session `to` shares rows 0 .. n - 1 of session `from`, if every layer's are on the CPU, for rings
 * those that are kept; replaces what `to` had there. Returns how many: whole pages, or 0 (then
 * nothing has changed). */
int kv_share(struct kv *kv, int from, int to, int n);
/* A job wrote rows pos .. pos + rows - 1 of a layer on a device, or advanced its state, except for
 * the last `drafted` rows. */
void kv_written(struct kv *kv, int session, int layer, int device, int pos, int rows, int drafted);
/* The same for a second device that computed the same after kv_written. */
void kv_written_too(struct kv *kv, int session, int layer, int device, int pos, int rows,
                    int drafted);
/* A device's rows or state of a layer are of no use: if it has none of the session's other layers
 * either, their memory goes back to the system. */
void kv_forget(struct kv *kv, int session, int layer, int device);
/* A job for rows up to `end` failed: its layer's recurrent state on that device is void, and the
 * rows that would have been overwritten. */
void kv_failed(struct kv *kv, int session, int layer, int device, int end);
/* Jobs for timing (attention_job.trial) may have written rows of the first session from pos on, on
 * any device: in rings, what those replaced is gone. */
void kv_measured(struct kv *kv, int pos, int rows);
/* A device freed its state of a layer, for every session. */
void kv_dropped(struct kv *kv, int layer, int device);
/* Copies the rows before pos of a layer, or its state at pos, to a device, about max_bytes per call
 * (state in one piece), and adds the bytes copied to *spent (may be NULL). 1: they are there, 0:
 * call again, negative: failed (ERR_DEVICE, also when no device has them). */
int kv_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t max_bytes,
            uint64_t *spent, struct error *e);

#endif
