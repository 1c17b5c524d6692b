/* The engine thread: owns engine, model, session, KV and devices. The UI thread sends commands,
 * drains events when the eventfd is readable, reads telemetry; nothing else is shared. A
 * TURN while one waits or runs is refused with ERR_USAGE; other commands are queued, and those that
 * concern the answer under way are obeyed between its tokens.
 * Shutdown: worker_stop cancels, joins and frees everything; the undrained events are released. */
#ifndef ENGINE_RUN_WORKER_H
#define ENGINE_RUN_WORKER_H

#include "engine/run/engine.h"

struct worker;

/* Returns at once; the model is loaded on the thread: LOADING events, then READY or ERROR. Strings
 * of c are copied. */
int worker_start(struct worker **out, const struct engine_config *c, struct error *e);
void worker_stop(struct worker *w);
int worker_event_fd(const struct worker *w); /* poll for POLLIN, then drain */
/* 1: filled, 0: none left (fd cleared first) */
int worker_next_event(struct worker *w, struct event *out);
/* Makes the descriptor readable, for what the reader waits for beside events. Any thread,
 * async-signal-safe. */
void worker_wake(struct worker *w);
/* takes what c points to, also on failure */
int worker_send(struct worker *w, struct command *c, struct error *e);
/* The turn or call under way ends; one that was sent and has not begun (the model is loading) ends
 * when it begins. What waits behind it stays. Any thread, async-signal-safe. */
void worker_cancel(struct worker *w);
const struct engine_info *worker_info(const struct worker *w); /* NULL before READY */
/* Newest telemetry: pointer valid until the next call. UI thread. NULL before READY. */
const struct telemetry *worker_telemetry(struct worker *w);

#endif
