/* --bandwidth: the semaphore's rate, and whether it is faster here. Thread: the one that opens the
 * engine. */
#ifndef APP_SETUP_BANDWIDTH_AUTO_H
#define APP_SETUP_BANDWIDTH_AUTO_H

#include "engine/run/engine.h"

/* Measures; for auto decides by decoding some tokens with and without it. */
int place_bandwidth(struct engine *g, enum bandwidth_mode mode, struct error *e);

#endif
