/* The engine state that a server publishes (GET /moetop/state): memory, devices, placement and
 * experts of its telemetry, to and from JSON. One table lists the members; figures of a turn are
 * not among them, as a client has turns of its own. */
#ifndef APP_COMMON_ENGINE_STATE_H
#define APP_COMMON_ENGINE_STATE_H

#include "engine/base/error.h"
#include "engine/run/report/telemetry.h"

#include <jansson.h>

/* A new object. NULL: no memory. Any thread that may read t. */
json_t *engine_state_json(const struct telemetry *t);
/* Into t, which is zeroed or was filled by this before; its arrays are reallocated if the shape
 * differs (telemetry_release frees them). o is untrusted: a mismatch is ERR_INPUT, and t is
 * unchanged. ERR_MEMORY. */
int engine_state_read(struct telemetry *t, const json_t *o, struct error *e);
/* Copies the same members of `from` into `to`, which has arrays of its own. ERR_MEMORY. */
int engine_state_copy(struct telemetry *to, const struct telemetry *from);

#endif
