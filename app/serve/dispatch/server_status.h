/* The state of the server for its readers (the dashboard on the terminal, a client's panels), and
 * their requests to the engine: one copy of everything under one lock. The dispatcher writes
 * sessions and the engine's state and takes the requests; the HTTP thread adds finished requests;
 * readers get a copy. It contains no text of prompts and answers. */
#ifndef APP_SERVE_DISPATCH_SERVER_STATUS_H
#define APP_SERVE_DISPATCH_SERVER_STATUS_H

#include "app/serve/dispatch/dispatcher_figures.h"
#include "ui/serving.h"

struct server;
struct server_status;
struct slot;
struct task;

struct server_status *server_status_new(void);    /* NULL: no memory */
void server_status_free(struct server_status *b); /* accepts NULL */

/* Any thread. A finished request, or (status 0) a line; the time of day is added. */
void server_status_request(struct server_status *b, const struct ui_request *r);
/* A line for the status (if there is one yet) and the log, and if s->plain for stderr. Any thread.
 */
void server_say(const struct server *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The dispatcher's thread, which owns slots and queue. Updates at most ten times a second, unless
 * at once. */
void server_status_sessions(struct server_status *b, const struct slot *slots, int n,
                            const struct task *queue, const struct dispatcher_figures *f,
                            bool at_once);
void server_status_first_token(struct server_status *b, double seconds);
void server_status_prompt_read(struct server_status *b,
                               int tokens); /* so many more of any prompt */
/* The engine's newest state, at most ten times a second; NULL: there is none yet. */
void server_status_engine(struct server_status *b, const struct telemetry *t);
/* The engine was replaced: its state is unknown until the next update. */
void server_status_forget_engine(struct server_status *b);
void server_status_loading(struct server_status *b, uint64_t done, uint64_t total);
/* The plan in force, after so many wishes of the engine's (struct event). */
void server_status_plan(struct server_status *b, const char *plan, uint64_t wishes);

/* Requests a placement (its name is copied; "prompt NAME" for prompts) or turns the token timeline
 * on or off; the dispatcher takes it. Any thread. Returns the wish's number; 0: no memory. */
uint64_t server_status_place(struct server_status *b, const char *plan);
void server_status_timeline(struct server_status *b, bool on);
/* The dispatcher's thread. true: one of the plans (mem_* memory, NULL: none) or *timeline (-1:
 * unchanged) is new. */
bool server_status_take(struct server_status *b, char *plans[PLAN_PHASES], int *timeline);

/* Any thread. *out is a copy. */
void server_status_look(struct server_status *b, struct ui_serving *out);
struct status_snapshot {
    uint64_t done, total;            /* loading: bytes */
    uint64_t wishes;                 /* decided, see struct event */
    char plan[TELEMETRY_PLAN_NAMES]; /* in force; "": not known yet */
};
void status_snapshot(struct server_status *b, struct status_snapshot *out);
/* Calls fn with the engine's newest state, owned by the status; not called if there is none. fn
 * must be quick and must not call the status. */
void server_status_telemetry(struct server_status *b,
                             void (*fn)(void *ctx, const struct telemetry *t), void *ctx);

#endif
