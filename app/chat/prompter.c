/* See prompter.h. The thread lives for one prompt; it owns its data until `made` is set. */
#include "app/chat/prompter.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <string.h>

static bool is_unwanted(void *ctx)
{
    return atomic_load(&((struct prompter *)ctx)->unwanted);
}

static void *make(void *ctx)
{
    struct prompter *p = ctx;
    struct stop stop = {is_unwanted, p};
    int held = p->history.n, dropped = p->history.dropped_messages;
    int *old = mem_alloc((size_t)held + 1, sizeof *old);

    if (old && held)
        memcpy(old, p->history.ids, (size_t)held * sizeof *old);
    p->rc = prompt_make(p->info, &p->history, &p->said, p->turn.max_tokens, &stop, &p->turn.prompt,
                        &p->error);
    if (p->rc == 0)
        cache_story_begin(&p->story, p->info, old ? old : &held, old ? held : 0, &p->turn.prompt,
                          &p->said, dropped, p->history.dropped_messages);
    mem_free(old);
    atomic_store(&p->made, true);
    p->done(p->done_ctx);
    return NULL;
}

int prompter_start(struct prompter *p, const struct engine_info *info, struct dialogue *said,
                   struct turn *turn, void (*done)(void *ctx), void *ctx, struct error *e)
{
    assert(!p->running);
    p->info = info;
    p->said = *said;
    p->turn = *turn;
    p->done = done;
    p->done_ctx = ctx;
    p->start_ns = clock_now();
    p->error = (struct error){0};
    atomic_store(&p->made, false);
    atomic_store(&p->unwanted, false);
    *said = (struct dialogue){0};
    *turn = (struct turn){0};
    if (pthread_create(&p->thread, NULL, make, p)) {
        dialogue_release(&p->said);
        turn_release(&p->turn);
        return error_set(e, ERR_MEMORY, "no thread for the prompt could be started");
    }
    p->running = true;
    return 0;
}

void prompter_stop(struct prompter *p)
{
    atomic_store(&p->unwanted, true);
}

bool prompter_take(struct prompter *p, struct turn *turn, int *rc, uint64_t *start_ns,
                   struct error *e)
{
    if (!p->running || !atomic_load(&p->made))
        return false;
    pthread_join(p->thread, NULL);
    p->running = false;
    dialogue_release(&p->said);
    *rc = p->rc;
    *start_ns = p->start_ns;
    if (p->rc < 0) {
        *e = p->error;
        turn_release(&p->turn);
    } else {
        *turn = p->turn;
        p->turn = (struct turn){0};
    }
    return true;
}

void prompter_release(struct prompter *p)
{
    if (p->running) {
        prompter_stop(p);
        pthread_join(p->thread, NULL);
    }
    dialogue_release(&p->said);
    turn_release(&p->turn);
    prompt_history_release(&p->history);
    memset(p, 0, sizeof *p);
}
