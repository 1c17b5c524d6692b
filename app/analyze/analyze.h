/* --analyze: what a model is made of, and what it would do here. No weight is read. Main thread. */
#ifndef APP_ANALYZE_ANALYZE_H
#define APP_ANALYZE_ANALYZE_H

#include "app/options/options.h"

bool analyze_wanted(const struct options *o);
int analyze_run(struct options *o, struct error *e);

#endif
