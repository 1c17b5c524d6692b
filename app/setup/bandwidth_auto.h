/* --bandwidth: the semaphore's rate, and whether it gains anything here. Thread: whoever opens the
 * engine. */
#ifndef APP_SETUP_BANDWIDTH_AUTO_H
#define APP_SETUP_BANDWIDTH_AUTO_H

#include "engine/run/engine.h"

/* Measures, and decides for auto by decoding some tokens with and without. */
int place_bandwidth(struct engine *g, enum bandwidth_mode mode, struct error *e);

#endif
