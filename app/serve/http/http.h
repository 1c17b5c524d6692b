/* HTTP by libmicrohttpd, and checks before a request reaches the server itself. One thread of the
 * library reads and writes all connections; it never blocks on an answer: a connection is suspended
 * until there is something to write. */
#ifndef APP_SERVE_HTTP_HTTP_H
#define APP_SERVE_HTTP_HTTP_H

#include "app/serve/common/server.h"

/* listening: a listening socket; taken, also on failure. timeout_s: seconds for which a client may
 * be silent (see deadlines.h for total limits). */
int http_start(struct server *s, int listening, int timeout_s, struct error *e);
/* Accepts no more connections; running ones continue. */
void http_quiesce(struct server *s);
void http_stop(struct server *s); /* when no request is running */

#endif
