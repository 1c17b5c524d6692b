/* --analyze: what a model consists of, and how fast it should run here. No weights are read. Main
 * thread. */
#ifndef APP_ANALYZE_ANALYZE_H
#define APP_ANALYZE_ANALYZE_H

#include "app/options/options.h"

bool analyze_wanted(const struct options *o);
int analyze_run(struct options *o, struct error *e);

#endif
