/* Turns a dialogue into token ids for the engine: template, reuse of generated answers' ids, and
 * the overflow policy. Does not touch the engine: the caller makes the prompt on its own thread,
 * however long the text is, and passes the ids. Any thread: tokenizer and template are immutable; a
 * history has one owner. */
#ifndef ENGINE_RUN_PROMPT_H
#define ENGINE_RUN_PROMPT_H

#include "engine/base/error.h"
#include "engine/base/stop.h"
#include "engine/run/config.h"
#include "engine/run/report/messages.h"

/* The session's contents as known to its owner: the newest prompt and its answer. If that answer
 * occurs in a later dialogue, its ids are reused, since the same text may have other tokenizations
 * and the session's KV rows belong to these. Zeroed: empty. */
struct prompt_history {
    int *ids, n, room;
    int dropped_messages; /* overflow policy: how many of the oldest are dropped */
};

void prompt_history_release(struct prompt_history *h); /* leaves zeros */
/* call when its session is cleared */
void prompt_history_clear(struct prompt_history *h);
/* Records the events of a turn (TOKEN, TURN_DONE). Allocates nothing. */
void prompt_history_note(struct prompt_history *h, const struct event *ev);

/* The ids of a dialogue, *out's are mem_* memory; h (may be NULL) is used and then starts with
 * them. max_tokens: limit of the answer, -1: none. When the conversation leaves less than a quarter
 * of the context (or max_tokens, if that is less) for the answer, its oldest turns are dropped; the
 * system message stays. Then more are dropped than needed (down to half of the context), so that
 * the next prompts find their prefix in the cache again. stop (may be NULL) is polled often:
 * ERR_CANCELLED. ERR_INPUT, ERR_MODEL (no tokenizer, an unusable template), ERR_CONTEXT,
 * ERR_MEMORY. */
int prompt_make(const struct engine_info *info, struct prompt_history *h, const struct dialogue *d,
                int max_tokens, const struct stop *stop, struct prompt *out, struct error *e);

struct engine;
/* A whole turn of the chat's session of a synchronous engine, on the caller's thread: prompt_make
 * (t has no prompt), then engine_turn, whose events are recorded in h too (may be NULL). */
int prompt_turn(struct engine *g, struct prompt_history *h, const struct dialogue *d,
                const struct turn *t, int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e);

#endif
