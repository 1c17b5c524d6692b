/* The engine thread: owns engine, model, sessions, KV and devices; and its clients, each a session
 * and a ring of events of its own. A client's owner sends commands, drains events when the eventfd
 * is readable, cancels; nothing else is shared. No client waits for another's reader: a ring grows
 * with what is left in it, and only for want of memory the thread waits. client_send refuses a TURN
 * while one of the same client waits or runs; other commands are queued in the client's order, and
 * those that concern answers under way are obeyed between their tokens.
 * The first client has the engine's own session (the one that telemetry tells of) and hears what
 * concerns all: LOADING, READY, PLAN, NOTICE, PROGRESS. Calls without another word: the client's
 * owner, one thread at a time.
 * Shutdown: worker_stop cancels, joins and frees everything, clients too; the undrained events are
 * released. */
#ifndef ENGINE_RUN_WORKER_H
#define ENGINE_RUN_WORKER_H

#include "engine/run/engine.h"

struct worker;
struct client;

/* Returns at once; the model is loaded on the thread: LOADING events, then READY or ERROR. Strings
 * of c are copied, but for overrides and what begins with chat_template, which must stay until
 * then. progress, stop, log and callback_ctx are the worker's own; `opened` runs on the thread. */
int worker_start(struct worker **out, const struct engine_config *c, struct error *e);
void worker_stop(struct worker *w);
struct client *worker_client(struct worker *w); /* the first one */
/* NULL before READY. Any thread. */
const struct engine_info *worker_info(const struct worker *w);
/* Newest telemetry: pointer valid until the next call. The first client's owner. NULL before READY.
 */
const struct telemetry *worker_telemetry(struct worker *w);

/* Another client. Its session is opened on the thread: READY, or ERROR where it does not fit (then
 * turns are refused by ERROR too). Any thread. ERR_MEMORY, ERR_USAGE: the engine has stopped. */
int client_open(struct client **out, struct worker *w, struct error *e);
/* Cancels, waits until the thread no longer uses it (at most one pass), frees; events that were not
 * drained are lost. Not the first one; not after worker_stop. Accepts NULL. */
void client_close(struct client *c);
int client_event_fd(const struct client *c); /* poll for POLLIN, then drain */
/* 1: filled, 0: none left (fd cleared first) */
int client_next_event(struct client *c, struct event *out);
/* Its owner's thread takes no more events: from now on another one does, or closes it. */
void client_hand_over(struct client *c);
/* Makes the descriptor readable, for what the reader waits for beside events. Any thread,
 * async-signal-safe. */
void client_wake(struct client *c);
/* Takes what k points to, also on failure: ERR_USAGE (the engine has stopped; a TURN while there is
 * one), ERR_MEMORY. CALL: the first client's alone; it waits for all turns, and no other begins. */
int client_send(struct client *c, struct command *k, struct error *e);
/* The client's turn or call under way ends; one that was sent and has not begun (the model is
 * loading) ends when it begins. What waits behind it stays, and so does all that others do. Any
 * thread, async-signal-safe. */
void client_cancel(struct client *c);

/* Pauses the client's answer while its reader is behind (engine_session_hold); others continue. The
 * caller releases it again, at the latest before the next turn. Any thread. */
void client_hold(struct client *c, bool held);

#endif
