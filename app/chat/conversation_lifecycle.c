/* A conversation from opening it, through the events of its worker, to closing it (conversation.h).
 */
#include "app/chat/internal.h"
#include "app/chat/report.h"
#include "app/setup/prompt.h"
#include "app/setup/remarks.h"
#include "app/setup/resolve.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

/* A resumed chat keeps its own system message, unless the command line gives one. */
static int system_set(struct conversation *c, const char *text, struct error *e)
{
    const struct options *o = c->options;
    bool asked = o->origin[OPTION_ID_system_prompt].from >= ORIGIN_FLAG ||
                 o->origin[OPTION_ID_system_prompt_file].from >= ORIGIN_FLAG;

    return conversation_goes_on(c) && !asked ? 0 : transcript_system(&c->transcript, text, e);
}

int conversation_open(struct conversation **out, struct options *o,
                      const struct conversation_hooks *hooks, struct error *e)
{
    struct conversation *c = mem_alloc(1, sizeof *c);
    char *text = NULL;
    int rc;

    if (o->report && (rc = report_check(o->report, e)) < 0) {
        mem_free(c);
        return rc;
    }
    if (!c)
        return error_set(e, ERR_MEMORY, "out of memory");
    c->options = o;
    c->auto_asked = o->place && strcmp(o->place, "auto") == 0;
    c->shadow_due = o->experts_used > 0 || o->experts_weight > 0 || o->defer_experts > 0;
    c->hooks = *hooks;
    autosave_init(&c->autosave);
    transcript_init(&c->transcript);
    c->pace = c->pace_asked = pace_from_options(o, true);
    if ((rc = conversation_file_open(c, e)) >= 0 && (rc = prompt_system(o, &text, e)) >= 0 &&
        (rc = system_set(c, text, e)) >= 0 && (rc = stats_open(&c->stats, o, e)) >= 0 &&
        (rc = conversation_tools_open(c, e)) >= 0 && (rc = conversation_beside_open(c, e)) >= 0)
        rc = conversation_link_open(c, e);
    mem_free(text);
    if (rc < 0) {
        conversation_beside_close(c);
        conversation_tools_close(c);
        stats_release(&c->stats);
        autosave_release(&c->autosave, false);
        transcript_release(&c->transcript);
        mem_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int conversation_close(struct conversation *c, struct error *e)
{
    bool saved;
    int rc;

    if (!c)
        return 0;
    if (c->busy)
        conversation_link_cancel(c);
    if (conversation_stats(c))
        stats_finish(&c->stats, c->options, stderr, e);
    prompter_release(&c->prompter);
    conversation_receipts_settle(c);
    conversation_beside_close(c);
    conversation_tools_close(c);
    conversation_link_close(c);
    mem_free(c->change.wanted);
    mem_free(c->change.back);
    model_files_release(&c->models);
    /* as much of the last answer as had been shown */
    if (c->busy && !c->compacting && c->transcript.n) {
        struct transcript_entry *last = &c->transcript.entries[c->transcript.n - 1];

        transcript_text(&c->transcript, c->transcript.n - 1, strbuf_text(&c->answer), e);
        snprintf(last->stop, sizeof last->stop, "%s", stop_reason_word(STOP_CANCELLED));
    }
    rc = conversation_save(c, e);
    saved = rc == 0;
    if (rc == 0 && c->options->report)
        rc = report_write(&c->transcript, &c->stats, c->options->report, e);
    if (c->failure.code < 0) {
        *e = c->failure;
        rc = c->failure.code;
    }
    autosave_release(&c->autosave, saved);
    stats_release(&c->stats);
    strbuf_release(&c->answer);
    strbuf_release(&c->thought);
    conversation_receipts_release(c);
    transcript_release(&c->transcript);
    mem_free(c->waiting);
    mem_free(c->chats);
    conversation_tokens_forget(c);
    mem_free(c->tokens);
    attention_look_free(c->look);
    mem_free(c);
    return rc;
}

static void remark_say(void *ctx, const char *line)
{
    conversation_say(ctx, SAY_NOTICE, "%s", line);
}

/* A turn that ended before its prefill says nothing about the cache. */
static void cache_note(struct conversation *c, const struct turn_done_event *d)
{
    if (c->remote || !d->prompt_tokens)
        return;
    c->story = c->prompter.story;
    c->has_story = true;
    cache_story_end(&c->story, d);
    stats_cache(&c->stats, c->story.lost, c->story.seconds, c->story.lost ? c->story.alike : -1,
                c->story.why);
    if (d->stored_tokens)
        conversation_say(c, SAY_NOTICE, "warm: %d of %d tokens came from the disk, %d were read",
                         d->stored_tokens, d->prompt_tokens, d->prompt_tokens - d->cached_tokens);
    if (c->story.lost)
        log_write(LOG_LEVEL_INFO, "cache: %d tokens computed again, %.3f s: %s", c->story.lost,
                  c->story.seconds, c->story.why);
}

const struct cache_story *conversation_cache(const struct conversation *c)
{
    return c->has_story ? &c->story : NULL;
}

static void answer_done(struct conversation *c, const struct turn_done_event *d)
{
    conversation_answer_measured(c, d);
    conversation_receipt_end(c, d);
}

/* The answer or summary being written has ended. */
static void writing_ended(struct conversation *c, enum stop_reason stop)
{
    if (!c->busy)
        return;
    c->busy = false;
    if (c->compacting)
        conversation_compact_ended(c, stop);
    else
        conversation_answer_ended(c, stop);
}

static void on_event(struct conversation *c, const struct event *ev)
{
    conversation_beside_note(c, ev);
    switch (ev->kind) {
    case EVENT_READY: {
        const struct telemetry *t = conversation_telemetry(c);

        c->ready = true;
        if (!c->plan[0] && t)
            telemetry_plan_names(t, c->plan, sizeof c->plan);
        if (c->remote)
            stats_remote(&c->stats, remote_server(c->remote)->model,
                         remote_server(c->remote)->http.base);
        else
            remarks_each(c->options, worker_info(c->worker), remark_say, c);
        break;
    }
    case EVENT_TURN_STARTED:
        stats_begin_turn(&c->stats);
        conversation_answer_placed(c);
        break;
    case EVENT_LOGPROBS: c->likely = ev->logprobs; break;
    case EVENT_TOKEN:
        c->answered += ev->token.id >= 0;
        prompt_history_note(&c->prompter.history, ev);
        receipt_text_note(&c->receipts.said, ev);
        conversation_answer_token(c, &ev->token);
        conversation_answer_text(c, &ev->token);
        break;
    case EVENT_TURN_DONE:
        prompt_history_note(&c->prompter.history, ev);
        stats_add_turn(&c->stats, &ev->done_turn);
        cache_note(c, &ev->done_turn);
        if (c->busy && !c->compacting && c->transcript.n)
            answer_done(c, &ev->done_turn);
        log_write(LOG_LEVEL_INFO, "answer: %d tokens in %.3f s, %s",
                  ev->done_turn.completion_tokens, clock_seconds(ev->done_turn.total_ns),
                  stop_reason_word(ev->done_turn.reason));
        if (!c->compacting)
            conversation_shadow_after(c, &ev->done_turn);
        writing_ended(c, ev->done_turn.reason);
        break;
    case EVENT_PLAN: conversation_placed(c, ev); break;
    case EVENT_ERROR:
        if (!c->ready && !c->failure.code)
            error_set(&c->failure, ev->failure.code < 0 ? ev->failure.code : ERR_MODEL, "%s",
                      ev->text ? ev->text : "the model cannot be read");
        writing_ended(c, STOP_ERROR);
        break;
    case EVENT_REPORT:
        c->calls -= c->calls > 0;
        c->measuring = c->measuring && c->calls > 0;
        if (c->hooks.say && ev->text)
            c->hooks.say(c->hooks.ctx, SAY_OUTPUT, ev->text);
        conversation_looked(c);
        break;
    case EVENT_STOPPED:
        prompter_release(&c->prompter);
        writing_ended(c, STOP_ERROR);
        c->calls = 0;
        c->worker_gone = true;
        break;
    default: break;
    }
}

/* Handles an event of the worker or of its replacement, and releases it. */
static void handle(struct conversation *c, struct event *ev)
{
    on_event(c, ev);
    if (c->hooks.event)
        c->hooks.event(c->hooks.ctx, ev);
    event_release(ev);
}

/* The answer ended before its turn began. */
static void turn_failed(struct conversation *c, int rc, const char *why, uint64_t start_ns)
{
    struct event ev = {.kind = EVENT_TURN_DONE};

    if (rc == ERR_CANCELLED) {
        ev.done_turn.reason = STOP_CANCELLED;
        ev.done_turn.total_ns = clock_now() - start_ns;
    } else {
        ev = (struct event){.kind = EVENT_ERROR, .text = mem_string(why)};
        ev.failure.code = rc;
    }
    handle(c, &ev);
}

/* Polls the prompt of the answer being started: sends its turn once it is made, or ends the answer.
 */
static void prompt_take(struct conversation *c)
{
    struct command k = {.kind = COMMAND_TURN};
    struct error e = {0};
    uint64_t start_ns;
    int rc;

    if (!prompter_take(&c->prompter, &k.turn, &rc, &start_ns, &e))
        return;
    if (rc == 0 && !c->compacting) {
        conversation_view_moved(c, c->prompter.history.dropped_messages);
        k.turn.prompt.dropped_turns = 0; /* conversation_view_moved reports it */
        conversation_receipt_prompt(c, &k.turn.prompt);
    }
    if (rc == 0 && !c->worker_gone)
        rc = client_send(c->client, &k, &e);
    else
        command_release(&k);
    if (rc == 0 && atomic_load(&c->prompter.unwanted)) /* cancelled before the turn existed */
        client_cancel(c->client);
    if (rc < 0 && c->busy)
        turn_failed(c, rc, e.text, start_ns);
}

void conversation_pump(struct conversation *c)
{
    struct event ev;

    if (!conversation_link_there(c)) /* no engine could be opened any more */
        return;
    while (conversation_link_next(c, &ev) == 1)
        handle(c, &ev);
    prompt_take(c);
    conversation_tools_pump(c);
    conversation_beside_pump(c);
    conversation_model_settle(c);
    if (!conversation_link_there(c))
        return;
    conversation_waiting_send(c);
    conversation_measure_after(c);
}

void conversation_stop(struct conversation *c)
{
    if (!c->busy && conversation_busy(c))
        conversation_tools_stop(c);
    conversation_beside_stop(c);
    prompter_stop(&c->prompter);
    conversation_link_cancel(c);
}
