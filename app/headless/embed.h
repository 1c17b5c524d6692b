/* --embed FILE: an embedding of every line. Main thread, synchronous engine. */
#ifndef APP_HEADLESS_EMBED_H
#define APP_HEADLESS_EMBED_H

#include "app/options/options.h"

bool embed_wanted(const struct options *o);
int embed_run(struct options *o, struct error *e);

#endif
