/* From a transcript to the turn that the engine answers. The thread that owns both. */
#ifndef APP_CHAT_TURN_H
#define APP_CHAT_TURN_H

#include "app/common/transcript.h"
#include "app/options/options.h"
#include "engine/run/engine.h"

/* The turn that answers a transcript, whose last entry is the answer: still empty, or (go_on) to be
 * continued; its prompt is to be made of `said`. Both are zero before and own what they get, even
 * on ERR_MEMORY. */
int turn_make(const struct options *o, const struct transcript *t, bool go_on,
              struct dialogue *said, struct turn *turn, struct error *e);

#endif
