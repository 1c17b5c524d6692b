/* Makes a chat's prompts on a separate thread: rendering and tokenising a long text blocks neither
 * the UI thread nor the engine's. One prompt at a time. All calls: the UI thread; prompter_stop:
 * any, async-signal-safe. */
#ifndef APP_CHAT_PROMPTER_H
#define APP_CHAT_PROMPTER_H

#include "app/chat/cache_doctor.h"
#include "engine/run/prompt.h"

#include <pthread.h>
#include <stdatomic.h>

struct prompter {
    struct prompt_history history; /* of the chat's session; owned by the thread while one runs */
    pthread_t thread;
    bool running; /* prompter_start .. prompter_take */
    atomic_bool made, unwanted;
    const struct engine_info *info;
    void (*done)(void *ctx);
    void *done_ctx;
    struct dialogue said;
    struct turn turn;
    uint64_t start_ns;
    int rc;
    struct error error;
    struct cache_story story; /* of the newest prompt: how it differs from the session's tokens */
};

/* Starts to make the turn's prompt of `said`; takes ownership of both, also on failure. done is
 * called on the thread when prompter_take has a result. info outlives it. ERR_MEMORY. */
int prompter_start(struct prompter *p, const struct engine_info *info, struct dialogue *said,
                   struct turn *turn, void (*done)(void *ctx), void *ctx, struct error *e);
/* Cancels the prompt being made: ERR_CANCELLED follows soon. */
void prompter_stop(struct prompter *p);
/* false: no result (yet). true: *rc is prompt_make's, 0: *turn is the caller's. *start_ns: when it
 * was requested. */
bool prompter_take(struct prompter *p, struct turn *turn, int *rc, uint64_t *start_ns,
                   struct error *e);
/* Cancels a running one and frees everything; zeroes *p. */
void prompter_release(struct prompter *p);

#endif
