/* --batch FILE|-: every line of the input is answered, JSON Lines out, in order. Main thread,
 * synchronous engine. */
#ifndef APP_HEADLESS_BATCH_H
#define APP_HEADLESS_BATCH_H

#include "app/options/options.h"

int batch_run(struct options *o, struct error *e);

#endif
