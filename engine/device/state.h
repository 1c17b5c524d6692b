/* What a layer keeps of the tokens behind it, by its mixer: the one place that counts it. Rows that
 * grow by token, of which a window lets only the last be seen and a ring keeps no more than that
 * takes, or a block of one size whatever the length. Plain data, any thread. */
#ifndef ENGINE_DEVICE_STATE_H
#define ENGINE_DEVICE_STATE_H

#include "engine/device/kv_type.h"
#include "engine/model/hparams.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state_size {
    /* A token's row: so many heads of a key and a value each, their widths. A latent row (MLA) is
     * one key without a value; heads 0: nothing grows. */
    int heads, key_dim, value_dim;
    size_t token_bytes; /* a token more takes */
    int ring;           /* tokens that are seen, the newest included; 0: all */
    size_t fixed_bytes; /* F32: what a recurrence and its convolution carry on */
};

/* What the room for state depends on beside the model: types of what grows, most tokens of a
 * session and most rows of a job. */
struct state_config {
    enum kv_type k, v;
    int context, rows;
};

/* Copies of state that are kept at least (engine/run/state/checkpoints.h). */
#define STATE_COPIES_LEAST 4

/* k, v: types of what grows. */
struct state_size state_size(const struct mixer_shape *m, enum kv_type k, enum kv_type v);
/* Tokens that there is room for in a session's rows of a layer; that of the token at position p is
 * p modulo the room. All of the context, up to a multiple of 16; or a ring, window + rows - 1 up to
 * a multiple of NUM_CHUNK: while so many rows are written each of them sees its window. A ring is
 * used where it saves more than twice what the fewest copies of it take, which going back needs. */
int state_room(const struct mixer_shape *m, const struct state_config *c);
/* That is a ring: rows so far behind the newest are overwritten. */
bool state_is_ring(const struct mixer_shape *m, const struct state_config *c);
/* What a session that goes further back than is kept needs a copy of: recurrent state, or the rows
 * of a ring that the next token sees; 0: nothing is ever lost. */
size_t state_copy_bytes(const struct mixer_shape *m, const struct state_config *c);
/* Of all layers: what `rows` tokens that are computed together read of one session's state when the
 * last of them sees `seen` tokens, itself included. */
uint64_t state_read_bytes(const struct hparams *hp, enum kv_type k, enum kv_type v, int seen,
                          int rows);
/* A Q8_0 cache is made of whole blocks. The width that keeps a model from having one; 0: none. */
int state_not_blocks(const struct hparams *hp, enum kv_type k, enum kv_type v);

#endif
