/* Between requests and the engine: the sessions, who has which, and who waits. One thread of its
 * own is the owner of the engine's clients; it gives waiting tasks to idle sessions, the one that
 * holds most of a prompt before others, drains the rings of their events into the answers, and ends
 * what nobody waits for any more. */
#ifndef APP_SERVE_HUB_H
#define APP_SERVE_HUB_H

#include "app/serve/hub_figures.h"
#include "app/serve/job.h"

/* Starts the thread and opens the sessions; the model may be loading still. */
int hub_start(struct server *s, struct error *e);
/* Waits until everything is answered, or `seconds` are over: then what is left is cancelled. */
void hub_drain(struct hub *h, int seconds);
void hub_stop(struct hub *h); /* accepts NULL */
/* For another model, while nothing is under way and nobody submits: let_go closes the sessions and
 * ends the thread; take_up, when the server has another worker, does what start did. The figures
 * count on. Main thread. */
void hub_let_go(struct hub *h);
int hub_take_up(struct hub *h, struct error *e);
bool hub_idle(struct hub *h); /* nothing is under way */
/* There is something new on the board for it to take. Any thread. */
void hub_wake(struct hub *h);
/* How the engine failed; code 0: it has not. */
struct error hub_failure(struct hub *h);
void hub_look(struct hub *h, struct hub_figures *out);

/* Takes j. Any thread. -1: refused, j is still the caller's. */
int hub_submit(struct hub *h, struct job *j, struct refusal *r);

/* What a route's function does with a request that the engine answers: makes a job, lets `read`
 * fill it, and submits it, or says why not. Desk thread. */
void hub_answer(struct exchange *x, const struct dialect *dialect, const char *prefix,
                int (*read)(struct job *j, struct refusal *r));

#endif
