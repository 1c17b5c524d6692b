/* Between requests and the engine: the sessions, their tasks, and the queue. Its thread owns the
 * engine's clients; it gives waiting tasks to idle sessions, preferring the one whose KV cache
 * holds the longest prefix of the prompt, turns events from their rings into answers, and cancels
 * tasks whose client has disconnected. */
#ifndef APP_SERVE_DISPATCH_DISPATCHER_H
#define APP_SERVE_DISPATCH_DISPATCHER_H

#include "app/serve/dispatch/dispatcher_figures.h"
#include "app/serve/request/job.h"

/* Starts the thread and opens the sessions; the model may still be loading. */
int dispatcher_start(struct server *s, struct error *e);
/* Waits until everything is answered, or for at most `seconds`: then cancels the rest. */
void dispatcher_drain(struct dispatcher *h, int seconds);
void dispatcher_stop(struct dispatcher *h); /* accepts NULL */
/* For another model, while nothing runs and nothing is submitted: release closes the sessions and
 * ends the thread; reopen, when the server has another worker, does the same as start. The figures
 * are kept. Main thread. */
void dispatcher_release(struct dispatcher *h);
int dispatcher_reopen(struct dispatcher *h, struct error *e);
bool dispatcher_idle(struct dispatcher *h); /* no task is running */
/* Wakes the dispatcher for a change of the status. Any thread. */
void dispatcher_wake(struct dispatcher *h);
/* The engine's error; code 0: none. */
struct error dispatcher_failure(struct dispatcher *h);
void dispatcher_forgive(struct dispatcher *h); /* forgets it; main thread, after a release */
void dispatcher_look(struct dispatcher *h, struct dispatcher_figures *out);

/* Takes j. Any thread. -1: refused, j is still the caller's. */
int dispatcher_submit(struct dispatcher *h, struct job *j, struct refusal *r);

/* Common part of the route functions for requests to the engine: makes a job, has `read` fill it,
 * and submits it, or refuses. Request thread. */
void dispatcher_answer(struct exchange *x, const struct dialect *dialect, const char *prefix,
                       int (*read)(struct job *j, struct refusal *r));

#endif
