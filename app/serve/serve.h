/* --serve: an HTTP server for the engine. Main thread. Its parts are in folders, each of which
 * depends only on those before it:
 *   common    shared by all threads: the server, a request's exchange, the model registry
 *   request   reads a request: its fields, its conversation, its job (request pool's threads)
 *   dispatch  assigns jobs to sessions, turns events into answers (dispatcher's thread)
 *   api       the routes: the table, and how each API reads and writes
 *   http      connections and access control (HTTP thread) */
#ifndef APP_SERVE_SERVE_H
#define APP_SERVE_SERVE_H

#include "app/options/options.h"

bool serve_wanted(const struct options *o);
int serve_run(struct options *o, struct error *e);

#endif
