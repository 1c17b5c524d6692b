/* The engine thread: owns engine, model, sessions, KV and devices; and its clients, each with a
 * session and a ring of events. A client's owner sends commands, drains events when the eventfd is
 * readable, cancels; nothing else is shared. No client waits for another's reader: a ring grows
 * with undrained events, and the thread waits only if memory runs out. client_send refuses a TURN
 * while one of the same client waits or runs; other commands are queued in the client's order, and
 * those that affect running answers are executed between tokens. The first client has the engine's
 * own session (described by the telemetry) and gets the events that concern all: LOADING, READY,
 * PLAN, NOTICE, PROGRESS. Functions without a thread note: the client's owner, one thread at a
 * time. Shutdown: worker_stop cancels, joins and frees everything, clients too; undrained events
 * are released. */
#ifndef ENGINE_RUN_WORKER_H
#define ENGINE_RUN_WORKER_H

#include "engine/run/engine.h"

struct worker;
struct client;

/* Returns at once; the thread loads the model: LOADING events, then READY or ERROR. Strings of c
 * are copied, except overrides and fields that start with chat_template, which must stay until
 * then. progress, stop, log and callback_ctx are set by the worker; `opened` runs on the thread. */
int worker_start(struct worker **out, const struct engine_config *c, struct error *e);
void worker_stop(struct worker *w);
struct client *worker_client(struct worker *w); /* the first one */
/* NULL before READY. Any thread. */
const struct engine_info *worker_info(const struct worker *w);
/* Newest telemetry: pointer valid until the next call. For the first client's owner. NULL before
 * READY. */
const struct telemetry *worker_telemetry(struct worker *w);

/* Adds a client. Its session is opened on the thread: READY, or ERROR if it does not fit (then its
 * turns end with ERROR too). Any thread. ERR_MEMORY, ERR_USAGE: the engine has stopped. */
int client_open(struct client **out, struct worker *w, struct error *e);
/* Cancels, waits until the thread no longer uses it (at most one pass), frees it; undrained events
 * are lost. Not the first one; not after worker_stop. Accepts NULL. */
void client_close(struct client *c);
int client_event_fd(const struct client *c); /* poll for POLLIN, then drain */
/* 1: filled, 0: none left (fd cleared first) */
int client_next_event(struct client *c, struct event *out);
/* The owner's thread stops draining events: from now on another one drains or closes it. */
void client_hand_over(struct client *c);
/* Makes the descriptor readable, for other things the reader waits for. Any thread,
 * async-signal-safe. */
void client_wake(struct client *c);
/* Takes ownership of k's contents, also on failure: ERR_USAGE (the engine has stopped; a TURN while
 * there is one), ERR_MEMORY. CALL: only for the first client; it waits for all turns, and no other
 * starts meanwhile. */
int client_send(struct client *c, struct command *k, struct error *e);
/* Ends the client's current turn or call; one that was sent but has not started (the model is
 * loading) ends when it starts. Commands queued after it stay, and other clients are not affected.
 * Any thread, async-signal-safe. */
void client_cancel(struct client *c);

/* Pauses the client's answer while its reader is behind (engine_session_hold); others continue. The
 * caller releases it again, at the latest before the next turn. Any thread. */
void client_hold(struct client *c, bool held);

#endif
