/* What a layer keeps of the tokens behind it, by its mixer: the one place that counts it. Rows that
 * grow by token, of which a window lets only the last be seen, or a block of one size whatever the
 * length. Plain data, any thread. */
#ifndef ENGINE_DEVICE_STATE_H
#define ENGINE_DEVICE_STATE_H

#include "engine/device/kv_type.h"
#include "engine/model/hparams.h"

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

/* k, v: types of what grows. */
struct state_size state_size(const struct mixer_shape *m, enum kv_type k, enum kv_type v);
/* Of all layers: what `rows` tokens that are computed together read of one session's state when the
 * last of them sees `seen` tokens, itself included. */
uint64_t state_read_bytes(const struct hparams *hp, enum kv_type k, enum kv_type v, int seen,
                          int rows);
/* A Q8_0 cache is made of whole blocks. The width that keeps a model from having one; 0: none. */
int state_not_blocks(const struct hparams *hp, enum kv_type k, enum kv_type v);

#endif
