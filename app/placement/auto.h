/* --place auto: measures whether this model should use the GPU here. Thread: the engine's. */
#ifndef APP_PLACEMENT_AUTO_H
#define APP_PLACEMENT_AUTO_H

#include "engine/run/engine.h"

/* Measures if it is due (engine_auto_due), within the time that is allowed, then applies auto to
 * both phases, which tells the verdict in a line. ERR_CANCELLED: interrupted, nothing is stored. */
int place_auto(struct engine *g, struct error *e);
/* Whether that measurement is due after an answer: the placement that the user asked for is auto,
 * and there is no verdict. */
bool place_auto_due(struct engine *g, const char *place);

#endif
