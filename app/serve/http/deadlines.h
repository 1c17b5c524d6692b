/* How long a client may take to send a request and to take its answer. The library ends a
 * connection that is silent; who sends or takes a little now and then would hold one for ever, and
 * a few hundred of them the server, or a few of them all its sessions. So the head of a request has
 * a time of its own, its body another, and so has the answer: of that only what it waits for the
 * client counts, not what the client waits for the model. A thread cuts off who takes longer: the
 * socket is shut down, and the library finds the client gone. */
#ifndef APP_SERVE_HTTP_DEADLINES_H
#define APP_SERVE_HTTP_DEADLINES_H

#include "engine/base/error.h"

#include <stdbool.h>

/* Times the seconds of silence that are allowed. A head begins where the answer before it ended, so
 * that its time holds a silence too. */
#define DEADLINE_HEAD 2
#define DEADLINE_BODY 10
#define DEADLINE_ANSWER 10

struct deadlines;
struct deadline; /* a connection's */

/* timeout_s: seconds of silence. */
int deadlines_start(struct deadlines **d, int timeout_s, struct error *e);
void deadlines_stop(struct deadlines *d); /* when no connection is left; NULL: nothing */

/* A connection, whose head is awaited from now. Lent until deadline_close, which must come before
 * the descriptor is closed. NULL: there is no room, and it has no deadline. The others: any
 * thread, and NULL does nothing. */
struct deadline *deadline_open(struct deadlines *d, int fd);
void deadline_close(struct deadlines *d, struct deadline *each);
/* The client has its part to do from now, in `times` the silence at most; 0: it has none. */
void deadline_set(struct deadlines *d, struct deadline *each, int times);
/* It has done what there was to do, and there will be more: the rest of the time is kept. */
void deadline_pause(struct deadlines *d, struct deadline *each);
void deadline_resume(struct deadlines *d, struct deadline *each);
/* It took longer, and was cut off. */
bool deadline_passed(struct deadlines *d, struct deadline *each);

#endif
