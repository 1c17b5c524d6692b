/* --serve: the engine for other programs, over HTTP. Main thread. What it starts stands in folders,
 * each of which knows those before it alone:
 *   common    what all threads share: the server, a request's exchange, the models there are
 *   request   a request is read: its fields, its conversation, its job (request pool's threads)
 *   dispatch  jobs get the engine's sessions, and events become answers (dispatcher's thread)
 *   api       the routes: which there are, and how each API reads and writes
 *   http      connections, and who may ask (HTTP thread) */
#ifndef APP_SERVE_SERVE_H
#define APP_SERVE_SERVE_H

#include "app/options/options.h"

bool serve_wanted(const struct options *o);
int serve_run(struct options *o, struct error *e);

#endif
