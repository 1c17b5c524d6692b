/* A model behind a server, with the interface of the engine's worker: a thread that talks to the
 * server, a ring of events, a cancel flag. The display treats both alike, except for what servers
 * do not report: events have no ids, and only a moetop reports experts and devices. Events: NOTICE
 * while waiting for the server, READY or ERROR, then for each request TURN_STARTED, TOKEN,
 * TURN_DONE or ERROR; STOPPED if it cannot be reached. A server that is lost later is looked for
 * until it is back: a request waits for it, at most ten minutes; NOTICE tells of both, and READY
 * comes again if its model is another one. Thread: the owner's, unless stated otherwise. */
#ifndef APP_CONNECT_REMOTE_H
#define APP_CONNECT_REMOTE_H

#include "app/connect/figures.h"
#include "app/connect/request.h"
#include "engine/run/report/telemetry.h"

struct remote;

/* Returns at once; `at` is copied. ERR_MEMORY, ERR_USAGE (the address). */
int remote_start(struct remote **out, const struct server_address *at, struct error *e);
void remote_stop(struct remote *r);          /* cancels the running request; accepts NULL */
int remote_event_fd(const struct remote *r); /* poll for POLLIN, then drain */
/* 1: filled, 0: none left */
int remote_next_event(struct remote *r, struct event *out);
/* Takes the request, also on failure. ERR_USAGE: one is under way, or the server was not reached.
 */
int remote_ask(struct remote *r, struct request *request, struct error *e);
/* Cancels the running request. Any thread, async-signal-safe. */
void remote_cancel(struct remote *r);
/* NULL before READY. Valid until READY comes again: a restarted server may have another model. */
const struct server *remote_server(const struct remote *r);
/* The newest figures, measured here; layers, experts and devices only if the server reports them
 * (remote_engine). Valid until the next call; NULL before READY. */
const struct telemetry *remote_telemetry(struct remote *r);
/* What the server last reported of itself (polled every two seconds). */
void remote_figures(struct remote *r, struct figures *out);
/* State of a moetop server's engine that is not in telemetry. */
struct remote_engine {
    char model[200], type[24];
    char devices[DEVICE_MAX][64]; /* their names */
};
/* false: the server does not report it, and telemetry has no layers, devices and plans. */
bool remote_engine(struct remote *r, struct remote_engine *out);
/* Requests another placement; PLAN reports when that is decided (its wishes count these calls), a
 * NOTICE why it is refused. -1: the server does not support it. */
int remote_place(struct remote *r, const char *plan);
/* Whether a busy or lost server is being waited for, in words for one line that counts seconds. */
bool remote_waits(struct remote *r, char *out, size_t size);
/* "127.0.0.1:8080", shown above an answer */
const char *remote_host(const struct remote *r);

#endif
