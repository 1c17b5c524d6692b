/* --place auto: whether this model should use the GPU here, found by measuring. Thread: the
 * engine's. */
#ifndef APP_PLACEMENT_AUTO_H
#define APP_PLACEMENT_AUTO_H

#include "engine/run/engine.h"

/* Without a stored verdict for this model and device: measures the candidates on a few tokens each,
 * beside the session, and stores the winner. take: the plan is auto then. ERR_CANCELLED:
 * interrupted, nothing is stored. */
int place_auto(struct engine *g, bool take, struct error *e);
/* Is there anything to measure, after an answer? When auto was asked for (place), or a real GPU was
 * used for the first time. */
bool place_auto_due(struct engine *g, const char *place);

#endif
