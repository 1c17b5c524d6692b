/* From what is said to the ids that an engine is given: template, the answers as they were
 * generated, and the overflow policy. No part of it touches the engine: who asks makes the prompt
 * on a thread of its own, however long the text is, and hands over the ids. Any thread: tokenizer
 * and template are immutable; a history has one owner. */
#ifndef ENGINE_RUN_PROMPT_H
#define ENGINE_RUN_PROMPT_H

#include "engine/base/error.h"
#include "engine/base/stop.h"
#include "engine/run/config.h"
#include "engine/run/report/messages.h"

/* What a session holds as far as its owner knows: the newest prompt and what was answered. An
 * answer that is said again takes these ids, for the same text may be written in others too, and
 * the session's KV rows belong to these. Zeroed: nothing yet. */
struct prompt_history {
    int *ids, n, room;
    int dropped_messages; /* overflow policy: how many of the oldest are left out */
};

void prompt_history_release(struct prompt_history *h); /* leaves zeros */
/* when its session is cleared or forgotten */
void prompt_history_clear(struct prompt_history *h);
/* Takes note of what a turn tells (TOKEN, TURN_DONE). Allocates nothing. */
void prompt_history_note(struct prompt_history *h, const struct event *ev);

/* The ids of a dialogue, *out's are mem_* memory; h (may be NULL) is used and then begins with
 * them. max_tokens: what the answer may take, -1: open. When the conversation leaves less than a
 * quarter of the context (or max_tokens, where that is less) for the answer, its oldest turns are
 * left out; the system message stays. Once turns are left out, more go than are needed (down to
 * half of the context), so that the next prompts find their prefix in the cache again. stop (may be
 * NULL) is asked often: ERR_CANCELLED. ERR_INPUT, ERR_MODEL (no tokenizer, a template that cannot
 * be used), ERR_CONTEXT, ERR_MEMORY. */
int prompt_make(const struct engine_info *info, struct prompt_history *h, const struct dialogue *d,
                int max_tokens, const struct stop *stop, struct prompt *out, struct error *e);

struct engine;
/* A whole turn of a synchronous engine's own session, on the caller's thread: prompt_make (t brings
 * no prompt), then engine_turn, whose events h notes too (may be NULL). */
int prompt_turn(struct engine *g, struct prompt_history *h, const struct dialogue *d,
                const struct turn *t, int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e);

#endif
