/* What a server tells of its engine to who watches it (GET /moetop/state): memory, devices,
 * placement and experts of its telemetry, as JSON and back. One table says which; the figures of a
 * turn are not among them, for who watches has turns of its own. */
#ifndef APP_COMMON_ENGINE_STATE_H
#define APP_COMMON_ENGINE_STATE_H

#include "engine/base/error.h"
#include "engine/run/report/telemetry.h"

#include <jansson.h>

/* A new object. NULL: no memory. Any thread that may read t. */
json_t *engine_state_json(const struct telemetry *t);
/* Into t, which is zeroed or was filled so before; its arrays are made anew where the shape is
 * another one (telemetry_release frees them). o is a stranger's: what does not fit is ERR_INPUT,
 * and t keeps what it had. ERR_MEMORY. */
int engine_state_read(struct telemetry *t, const json_t *o, struct error *e);
/* The same members of `from` into `to`, whose arrays are its own. ERR_MEMORY. */
int engine_state_copy(struct telemetry *to, const struct telemetry *from);

#endif
