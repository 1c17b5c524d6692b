/* --fetch: downloads the model of -hf and prints where it is. Main thread. */
#ifndef APP_HEADLESS_FETCH_MODE_H
#define APP_HEADLESS_FETCH_MODE_H

#include "app/options/options.h"

bool fetch_wanted(const struct options *o);
/* The download itself came before, as for every mode. ERR_USAGE: without -hf. */
int fetch_run(struct options *o, struct error *e);

#endif
