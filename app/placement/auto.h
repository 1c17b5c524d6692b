/* --place auto: measures whether this model should use the GPU here. Thread: the engine's. */
#ifndef APP_PLACEMENT_AUTO_H
#define APP_PLACEMENT_AUTO_H

#include "engine/run/engine.h"

/* Without a stored result for this model and device: measures the candidates on a few tokens each,
 * in the session, which is restored afterwards, and stores the winner; then applies it.
 * ERR_CANCELLED: interrupted, nothing is stored. */
int place_auto(struct engine *g, struct error *e);
/* Whether that measurement is due after an answer: the placement that the user asked for is auto,
 * and there is no stored result. */
bool place_auto_due(struct engine *g, const char *place);

#endif
