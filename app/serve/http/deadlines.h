/* Limits the time that a client may take to send a request and to read its answer. The library
 * closes silent connections; but a client that sends or reads a little now and then would keep one
 * forever, and a few hundred of them the server, or a few of them all its sessions. So the head of
 * a request has a time limit, its body another, and so has the answer: for that only time spent
 * waiting for the client counts, not the model's. A thread cuts off clients that exceed it: it
 * shuts down the socket, and the library finds the client gone. */
#ifndef APP_SERVE_HTTP_DEADLINES_H
#define APP_SERVE_HTTP_DEADLINES_H

#include "engine/base/error.h"

#include <stdbool.h>

/* Multiples of the allowed seconds of silence. The head's time begins at the end of the previous
 * answer, so it includes one silence. */
#define DEADLINE_HEAD 2
#define DEADLINE_BODY 10
#define DEADLINE_ANSWER 10

struct deadlines;
struct deadline; /* a connection's */

/* timeout_s: seconds of silence. */
int deadlines_start(struct deadlines **d, int timeout_s, struct error *e);
void deadlines_stop(struct deadlines *d); /* when no connection is left; NULL: nothing */

/* A connection whose head is expected from now on. Borrowed until deadline_close, which must be
 * called before the descriptor is closed. NULL: no room, so no deadline. The others: any thread;
 * NULL does nothing. */
struct deadline *deadline_open(struct deadlines *d, int fd);
void deadline_close(struct deadlines *d, struct deadline *each);
/* The client must act from now on, within `times` the allowed silence; 0: it need not. */
void deadline_set(struct deadlines *d, struct deadline *each, int times);
/* The client has done its part for now: pauses the clock and keeps the remaining time. */
void deadline_pause(struct deadlines *d, struct deadline *each);
void deadline_resume(struct deadlines *d, struct deadline *each);
/* It exceeded its limit and was cut off. */
bool deadline_passed(struct deadlines *d, struct deadline *each);

#endif
