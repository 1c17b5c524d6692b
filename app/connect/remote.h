/* A model behind a server, with the face of the engine's worker: a thread that talks to the server,
 * a ring of events, a flag to cancel. Who draws does not know the difference, but for what no
 * server tells: there are no ids in its events, and of experts and devices only a moetop tells.
 * Events: NOTICE while the server is waited for, READY or ERROR, then for each request
 * TURN_STARTED, TOKEN, TURN_DONE or ERROR; STOPPED when it could not be reached. Calls without
 * another word: the owner's, one thread. */
#ifndef APP_CONNECT_REMOTE_H
#define APP_CONNECT_REMOTE_H

#include "app/connect/figures.h"
#include "app/connect/request.h"
#include "engine/run/report/telemetry.h"

struct remote;

/* Returns at once. key_file and model: NULL: none. ERR_MEMORY, ERR_USAGE (the address). */
int remote_start(struct remote **out, const char *url, const char *key_file, const char *model,
                 struct error *e);
void remote_stop(struct remote *r);          /* what is under way ends; accepts NULL */
int remote_event_fd(const struct remote *r); /* poll for POLLIN, then drain */
/* 1: filled, 0: none left */
int remote_next_event(struct remote *r, struct event *out);
/* Takes the request, also on failure. ERR_USAGE: one is under way, or the server was not reached.
 */
int remote_ask(struct remote *r, struct request *request, struct error *e);
/* The request under way ends. Any thread, async-signal-safe. */
void remote_cancel(struct remote *r);
/* NULL before READY. */
const struct server *remote_server(const struct remote *r);
/* The newest figures, of what arrived here; layers, experts and devices where the server tells of
 * them (remote_engine), else none. Valid until the next call; NULL before READY. */
const struct telemetry *remote_telemetry(struct remote *r);
/* What the server told of itself lately (it is asked every two seconds). */
void remote_figures(struct remote *r, struct figures *out);
/* What telemetry does not say of the engine of a server that tells all (a moetop). */
struct remote_engine {
    char model[200], type[24];
    char devices[DEVICE_MAX][64]; /* their names */
};
/* false: it tells nothing, and telemetry has no layers, devices and plans. */
bool remote_engine(struct remote *r, struct remote_engine *out);
/* Asks it for another placement; PLAN tells when that is decided (its wishes count these calls), a
 * NOTICE why it is not. -1: it takes no such wish. */
int remote_place(struct remote *r, const char *plan);
/* "127.0.0.1:8080", for the line over an answer */
const char *remote_host(const struct remote *r);

#endif
