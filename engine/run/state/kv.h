/* Which device has what the sessions' layers keep, and copies between them. Rows once written for a
 * session never change, so a row counts as valid wherever it was computed or copied, until the
 * session is cut before it, or newer rows of a ring (engine/device/state.h) have taken its place.
 * So of a layer a device has the rows from some place to another: the first ones, but for rings,
 * whose next token needs only what its window shows. Recurrent state stands after some number of
 * tokens, on every device after another one, and is good for what follows there alone; after 0 it
 * needs no copy. Thread: the engine's. Owner: the engine. */
#ifndef ENGINE_RUN_KV_H
#define ENGINE_RUN_KV_H

#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/device/state.h"

#include <stddef.h>
#include <stdint.h>

struct device_slot;

struct kv {
    struct device_slot *slots; /* the engine's, DEVICE_MAX */
    int n_layers;
    /* n_sessions of (DEVICE_MAX, n_layers): where the rows that are valid there begin and end, or
     * the tokens after which recurrent state stands there (end); NULL: no session */
    /* ahead: of recurrent state, so many tokens behind `end` were drafted, and it can go on after
     * each of them */
    struct kv_held {
        int begin, end, ahead;
    } * *held;
    int n_sessions;
    void *staging; /* rows on their way */
    /* n_layers. row_bytes: one token in the exchange layout; 0: the layer keeps no rows.
     * fixed_bytes: of recurrent state; 0: it has none. ring: rows a device keeps of it, window:
     * that a token sees of them, itself included; 0: every row is kept. copy_bytes: of a copy
     * (state.h) */
    struct kv_layer {
        size_t row_bytes, fixed_bytes, copy_bytes;
        int ring, window;
    } * layers;
    size_t all_fixed, all_copies; /* of all layers */
};

int kv_init(struct kv *kv, const struct model *m, struct device_slot *slots,
            const struct state_config *c, struct error *e);
void kv_release(struct kv *kv);
/* The list of a session's rows, empty; ERR_MEMORY. */
int kv_open(struct kv *kv, int session, struct error *e);
void kv_close(struct kv *kv, int session);
/* Where the rows end that are valid on a device. */
int kv_valid(const struct kv *kv, int session, int layer, int device);
/* Whether a layer can go on at pos on a device: the rows before pos are there, as far as the next
 * token sees them, or its state. */
bool kv_there(const struct kv *kv, int session, int layer, int device, int pos);
/* Whether every layer can go on at pos, after copies between devices perhaps. */
bool kv_stands(const struct kv *kv, int session, int pos);
/* Whether copies can be taken there: recurrent state does, without the next job's help. */
bool kv_copies(const struct kv *kv, int session, int pos);
/* Leading rows that some device has of every layer that keeps all of them. */
int kv_rows_held(const struct kv *kv, int session);
/* What a layer needs a copy of to go on at pos, copy_bytes: its recurrent state, or of its ring
 * what the next token sees; from whichever device has it (ERR_DEVICE: none), and onto the CPU. */
int kv_copy_read(struct kv *kv, int session, int layer, int pos, void *to, struct error *e);
int kv_copy_write(struct kv *kv, int session, int layer, int pos, const void *from,
                  struct error *e);
/* n rows of a layer that keeps all of them, from pos on, in the exchange layout (device.h): from
 * whichever device has them, and onto the CPU, where those before pos are brought too. ERR_DEVICE.
 */
int kv_rows_read(struct kv *kv, int session, int layer, int pos, int n, void *to, struct error *e);
int kv_rows_write(struct kv *kv, int session, int layer, int pos, int n, const void *from,
                  struct error *e);
/* The session ends at pos: later rows are void everywhere, and so is state that stands later. */
void kv_cut(struct kv *kv, int session, int pos);
/* What rows of ended and cut sessions took goes back to the system; bytes. */
uint64_t kv_trim(struct kv *kv);
/* Rows 0 .. n - 1 of session `from` become `to`'s too, where every layer's lie on the CPU, of rings
 * what is left; what `to` had there is gone. Returns how many: whole pages, or 0 (then nothing has
 * changed). */
int kv_share(struct kv *kv, int from, int to, int n);
/* A job wrote rows pos .. pos + rows - 1 of a layer on a device, or took its state that far, but
 * for the last `drafted` of them. */
void kv_written(struct kv *kv, int session, int layer, int device, int pos, int rows, int drafted);
/* A job that would have written rows up to `end` failed: its layer's recurrent state on that device
 * is void, and what those rows would have overwritten. */
void kv_failed(struct kv *kv, int session, int layer, int device, int end);
/* A device gave what a layer keeps up, every session's. */
void kv_dropped(struct kv *kv, int layer, int device);
/* Brings the rows before pos of a layer, or its state after pos tokens, to a device, about
 * max_bytes a call (state in one piece), and adds what was copied to *spent (may be NULL). 1: they
 * are there, 0: call again, negative: failed (ERR_DEVICE, also when no device has them). */
int kv_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t max_bytes,
            uint64_t *spent, struct error *e);

#endif
