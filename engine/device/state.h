/* A layer's state per session, by its mixer, and its size: rows per token, of which a window makes
 * only the last visible and a ring keeps no more than needed, or a block of fixed size whatever the
 * length. Plain data, any thread. */
#ifndef ENGINE_DEVICE_STATE_H
#define ENGINE_DEVICE_STATE_H

#include "engine/device/kv_type.h"
#include "engine/model/hparams.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state_size {
    /* A token's row: so many heads of a key and a value each, their widths. A latent row (MLA) is
     * one key without a value, or with the key of the layer's indexer for a value (that of
     * attention: of one further head); heads 0: no rows. */
    int heads, key_dim, value_dim;
    size_t token_bytes; /* per token */
    int ring;           /* visible tokens, including the newest; 0: all */
    /* F32: state of a recurrence and its convolution; besides rows, of convolved attention */
    size_t fixed_bytes;
};

/* Parameters of the state's size besides the model: types of rows, most tokens of a session and
 * most rows of a job. */
struct state_config {
    enum kv_type k, v;
    int context, rows;
};

/* Least number of state copies kept (engine/run/state/checkpoints.h). */
#define STATE_COPIES_LEAST 4

/* k, v: types of the rows. */
struct state_size state_size(const struct mixer_shape *m, enum kv_type k, enum kv_type v);
/* Capacity in tokens of a session's rows of a layer; that of the token at position p is p modulo
 * the capacity. All of the context, up to a multiple of 16; or a ring, window + rows - 1 up to a
 * multiple of NUM_CHUNK: while so many rows are written each of them sees its window. A ring is
 * used if it saves more than twice the memory of the fewest copies of it, which rewinding needs. */
int state_room(const struct mixer_shape *m, const struct state_config *c);
/* Whether that is a ring: rows so far behind the newest are overwritten. */
bool state_is_ring(const struct mixer_shape *m, const struct state_config *c);
/* Bytes of the copy that a session needs to rewind beyond the kept rows: recurrent state, or the
 * ring rows that the next token sees; 0: rewinding needs no copy. */
size_t state_copy_bytes(const struct mixer_shape *m, const struct state_config *c);
/* Bytes, over all layers, that `rows` tokens computed together read of one session's state when the
 * last of them sees `seen` tokens, itself included. */
uint64_t state_read_bytes(const struct hparams *hp, enum kv_type k, enum kv_type v, int seen,
                          int rows);
/* A Q8_0 cache has only whole blocks. The width that is not a multiple of a block; 0: none. */
int state_not_blocks(const struct hparams *hp, enum kv_type k, enum kv_type v);

#endif
