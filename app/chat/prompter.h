/* Makes a chat's prompts on a thread of their own: rendering and tokenising a long text freezes
 * neither the UI thread nor the engine's. One prompt at a time. All calls: the UI thread;
 * prompter_stop: any, async-signal-safe. */
#ifndef APP_CHAT_PROMPTER_H
#define APP_CHAT_PROMPTER_H

#include "app/chat/cache_doctor.h"
#include "engine/run/prompt.h"

#include <pthread.h>
#include <stdatomic.h>

struct prompter {
    struct prompt_history history; /* of the chat's session; the thread's while one runs */
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
    struct cache_story story; /* of the prompt made last: how it parts from what is held */
};

/* Begins to make the turn's prompt of `said`; takes what both own, also on failure. done is called
 * on the thread when prompter_take has something to give. info outlives it. ERR_MEMORY. */
int prompter_start(struct prompter *p, const struct engine_info *info, struct dialogue *said,
                   struct turn *turn, void (*done)(void *ctx), void *ctx, struct error *e);
/* The prompt being made is not wanted any more: ERR_CANCELLED comes soon. */
void prompter_stop(struct prompter *p);
/* false: there is nothing (yet). true: *rc is prompt_make's, 0: *turn is the caller's. *start_ns:
 * when it was asked for. */
bool prompter_take(struct prompter *p, struct turn *turn, int *rc, uint64_t *start_ns,
                   struct error *e);
/* Ends what is under way and frees everything; leaves zeros. */
void prompter_release(struct prompter *p);

#endif
