/* --fit: what a model needs and what is free. Main thread. */
#ifndef APP_HEADLESS_FIT_MODE_H
#define APP_HEADLESS_FIT_MODE_H

#include "app/options/options.h"

bool fit_wanted(const struct options *o);
int fit_run(struct options *o, struct error *e);

#endif
