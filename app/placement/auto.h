/* --place auto: measures whether this model should use the GPU here. Thread: the engine's. */
#ifndef APP_PLACEMENT_AUTO_H
#define APP_PLACEMENT_AUTO_H

#include "engine/run/engine.h"

/* Without a stored result for this model and device: measures the candidates on a few tokens each,
 * in the session, which is restored afterwards, and stores the winner. take: then applies it (the
 * placement is auto). ERR_CANCELLED: interrupted, nothing is stored. */
int place_auto(struct engine *g, bool take, struct error *e);
/* Whether a measurement is due after an answer: if auto was requested (place), or a real GPU was
 * used for the first time. */
bool place_auto_due(struct engine *g, const char *place);

#endif
