/* --serve: the engine for other programs, over HTTP. Main thread. */
#ifndef APP_SERVE_SERVE_H
#define APP_SERVE_SERVE_H

#include "app/options/options.h"

bool serve_wanted(const struct options *o);
int serve_run(struct options *o, struct error *e);

#endif
