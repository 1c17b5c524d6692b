/* What a layer keeps of the tokens behind it, by its mixer: the one place that counts it. Rows that
 * grow by token, of which a window lets only the last be seen, or a block of one size whatever the
 * length. Plain data, any thread. */
#ifndef ENGINE_DEVICE_STATE_H
#define ENGINE_DEVICE_STATE_H

#include "engine/device/kv_type.h"
#include "engine/model/shape.h"

#include <stddef.h>

struct state_size {
    size_t token_bytes; /* a token more takes */
    int ring;           /* tokens that are seen, the newest included; 0: all */
    size_t fixed_bytes; /* F32: what a recurrence and its convolution carry on */
};

/* k, v: types of what grows; a latent row (MLA) is a key. */
struct state_size state_size(const struct mixer_shape *m, enum kv_type k, enum kv_type v);

#endif
