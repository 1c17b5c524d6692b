/* HTTP: what libmicrohttpd does, and what is refused before the server itself is asked. One thread
 * of the library's own reads and writes all connections; it never waits for an answer: a connection
 * sleeps until there is something to write. */
#ifndef APP_SERVE_HTTP_HTTP_H
#define APP_SERVE_HTTP_HTTP_H

#include "app/serve/common/server.h"

/* listening: a socket that listens; taken, also on failure. timeout_s: seconds in which a client
 * may be silent (see deadlines.h for what it may take in all). */
int http_start(struct server *s, int listening, int timeout_s, struct error *e);
/* No further connection is taken; those under way go on. */
void http_quiesce(struct server *s);
void http_stop(struct server *s); /* when nothing is under way */

#endif
