/* One answer of a server, told as the engine tells its own: TURN_STARTED, TOKEN (its text without
 * ids), TURN_DONE. Times are those that were measured here. Any thread. */
#ifndef APP_CONNECT_ANSWER_H
#define APP_CONNECT_ANSWER_H

#include "app/connect/request.h"

/* on_event: non-zero ends the answer, as stop (asked while nothing comes; may be NULL) does; *done
 * says STOP_CANCELLED then, and 0 is returned. Busy servers (429, 502, 503, 504) and refused
 * connections are asked again with pauses, as long as nothing has come and the server asks for no
 * more than a minute; a long pause is told as NOTICE. ERR_IO: the stream broke, what came is told
 * already and *done counts it; errors of http_refused. *e names the server. */
int answer_remote(const struct server *s, const struct request *r,
                  int (*on_event)(void *ctx, struct event *ev), bool (*stop)(void *ctx), void *ctx,
                  struct turn_done_event *done, struct error *e);

/* Time between the first and the last token of an answer, as its rate is told by; 0: so short that
 * it says how the network bundled them, not how fast they were made. Nanoseconds. */
uint64_t answer_decode_ns(uint64_t first, uint64_t last);

#endif
