/* One answer of a server, reported like the engine's own: TURN_STARTED, TOKEN (its text without
 * ids), TURN_DONE. Times are measured here. Any thread. */
#ifndef APP_CONNECT_ANSWER_H
#define APP_CONNECT_ANSWER_H

#include "app/connect/request.h"

/* on_event: non-zero ends the answer, and so does stop (polled while nothing arrives; may be NULL);
 * *done then has STOP_CANCELLED, and 0 is returned. Busy servers (429, 502, 503, 504) and refused
 * connections are retried with pauses, as long as nothing has arrived and the server asks for at
 * most a minute; a long pause is reported as NOTICE. ERR_IO: the stream broke; what arrived was
 * reported and is counted in *done; errors of http_refused. *e names the server. */
int answer_remote(const struct server *s, const struct request *r,
                  int (*on_event)(void *ctx, struct event *ev), bool (*stop)(void *ctx), void *ctx,
                  struct turn_done_event *done, struct error *e);

/* Time between the first and the last token of an answer, from which its rate is computed; 0: too
 * short, as it measures how the network bundled them. Nanoseconds. */
uint64_t answer_decode_ns(uint64_t first, uint64_t last);

#endif
