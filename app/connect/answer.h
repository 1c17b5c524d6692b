/* One answer of a server, reported like the engine's own: TURN_STARTED, TOKEN (its text without
 * ids), TURN_DONE. Times are measured here. Any thread. */
#ifndef APP_CONNECT_ANSWER_H
#define APP_CONNECT_ANSWER_H

#include "app/connect/request.h"

/* A pause before a busy server is asked again. */
struct answer_pause {
    long status; /* of HTTP */
    uint64_t until_ns;
};

/* Who is told of an answer. */
struct answer_listener {
    int (*on_event)(void *ctx, struct event *ev); /* non-zero ends the answer */
    bool (*stop)(void *ctx);                      /* polled while nothing arrives; may be NULL */
    /* a pause begins, NULL: it is over; may be NULL */
    void (*pause)(void *ctx, const struct answer_pause *p);
    void *ctx;
};

/* If the listener ends the answer *done has STOP_CANCELLED, and 0 is returned. Busy servers (429,
 * 502, 503, 504) and refused connections are retried with pauses, four times, as long as nothing
 * has arrived and the server asks for at most a minute; a pause of two seconds and more is
 * reported, as NOTICE too. ERR_IO: the stream broke, or nothing came for the server's silence; what
 * arrived was reported and is counted in *done; errors of http_refused. *e names the server. */
int answer_remote(const struct server *s, const struct request *r, const struct answer_listener *l,
                  struct turn_done_event *done, struct error *e);

/* Time between the first and the last token of an answer, from which its rate is computed; 0: too
 * short, as it measures how the network bundled them. Nanoseconds. */
uint64_t answer_decode_ns(uint64_t first, uint64_t last);

#endif
