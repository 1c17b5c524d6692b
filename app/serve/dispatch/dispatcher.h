/* Between requests and the engine: the sessions, who has which, and who waits. One thread of its
 * own is the owner of the engine's clients; it gives waiting tasks to idle sessions, the one that
 * holds most of a prompt before others, drains the rings of their events into the answers, and ends
 * what nobody waits for any more. */
#ifndef APP_SERVE_DISPATCH_DISPATCHER_H
#define APP_SERVE_DISPATCH_DISPATCHER_H

#include "app/serve/dispatch/dispatcher_figures.h"
#include "app/serve/request/job.h"

/* Starts the thread and opens the sessions; the model may be loading still. */
int dispatcher_start(struct server *s, struct error *e);
/* Waits until everything is answered, or `seconds` are over: then what is left is cancelled. */
void dispatcher_drain(struct dispatcher *h, int seconds);
void dispatcher_stop(struct dispatcher *h); /* accepts NULL */
/* For another model, while nothing is under way and nobody submits: release closes the sessions and
 * ends the thread; reopen, when the server has another worker, does what start did. The figures
 * count on. Main thread. */
void dispatcher_release(struct dispatcher *h);
int dispatcher_reopen(struct dispatcher *h, struct error *e);
bool dispatcher_idle(struct dispatcher *h); /* nothing is under way */
/* There is something new on the status for it to take. Any thread. */
void dispatcher_wake(struct dispatcher *h);
/* How the engine failed; code 0: it has not. */
struct error dispatcher_failure(struct dispatcher *h);
void dispatcher_look(struct dispatcher *h, struct dispatcher_figures *out);

/* Takes j. Any thread. -1: refused, j is still the caller's. */
int dispatcher_submit(struct dispatcher *h, struct job *j, struct refusal *r);

/* What a route's function does with a request that the engine answers: makes a job, lets `read`
 * fill it, and submits it, or says why not. Request thread. */
void dispatcher_answer(struct exchange *x, const struct dialect *dialect, const char *prefix,
                       int (*read)(struct job *j, struct refusal *r));

#endif
