/* See conversation.h. */
#include "app/chat/conversation.h"
#include "app/setup/engine_options.h"
#include "app/chat/export.h"
#include "app/chat/turn.h"
#include "app/chat/autosave.h"
#include "app/placement/auto.h"
#include "app/setup/resolve.h"
#include "app/setup/remarks.h"
#include "app/setup/run_stats.h"
#include "app/setup/prompt.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* an answer is called paced when it waited for more than this share of its time */
#define PACED_SHARE 0.05
/* what F2 goes back to when no pace was configured: about as fast as one reads */
#define PACE_DEFAULT 40.0

struct conversation {
    struct options *options;
    struct conversation_hooks hooks;
    /* what the engine thread reads: nobody changes it from the worker's start to its end */
    struct engine_setup setup;
    struct worker *worker;
    struct transcript transcript;
    struct autosave autosave;
    struct chat_exports exports;   /* of this chat */
    struct transcript_info *chats; /* as listed last, n_chats; owned */
    size_t n_chats;
    bool save_said; /* trouble with saving is said once */
    bool ready, busy, over, worker_gone;
    /* placements are to be measured after an answer; that is being done */
    bool auto_asked, auto_wanted, auto_done, measuring;
    int calls;            /* conversation_call's that have not reported yet */
    struct strbuf answer; /* text of the running answer */
    /* its tokens so far, with those that were there before /continue */
    int answered;
    bool paced;      /* a pace held it up */
    char plan[64];   /* in force */
    /* placements asked for; of them the newest that is told when it is in force (a command asked);
       how many were answered */
    uint64_t places_sent, place_told, places_answered;
    bool editing; /* the next message takes the place of the last one */
    char *waiting;
    double pace, pace_asked;
    struct stats stats;
    struct error failure; /* what should become the exit code */
};

void conversation_say(struct conversation *c, enum conversation_say kind, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_write(kind == SAY_TROUBLE ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, "%s", line);
    if (c->hooks.say)
        c->hooks.say(c->hooks.ctx, kind, line);
}

/* A chat begins, or one that was read goes on: in a file of its own. */
static void begin_file(struct conversation *c)
{
    struct error e = {0};

    c->exports = (struct chat_exports){0};
    if (c->hooks.unkept)
        return;
    if (autosave_name(&c->autosave, &e) < 0)
        conversation_say(c, SAY_NOTICE, "this chat is not saved: %s", e.text);
}

int conversation_save(struct conversation *c, struct error *e)
{
    return autosave_write(&c->autosave, &c->transcript, e);
}

void conversation_keep(struct conversation *c)
{
    if (!c->hooks.unkept)
        return;
    c->hooks.unkept = false;
    begin_file(c);
}

int conversation_chats(struct conversation *c, bool fresh, const struct transcript_info **out,
                       size_t *n, struct error *e)
{
    size_t kept = 0;
    int rc = 0;

    if (fresh || !c->chats) {
        const char *own = strrchr(c->autosave.path, '/');

        mem_free(c->chats);
        rc = transcript_list(&c->chats, &c->n_chats, e);
        for (size_t i = 0; i < c->n_chats; i++) {
            size_t len = strlen(c->chats[i].name);

            if (!own || strncmp(own + 1, c->chats[i].name, len) != 0 ||
                strcmp(own + 1 + len, ".json") != 0)
                c->chats[kept++] = c->chats[i];
        }
        c->n_chats = kept;
    }
    *out = c->chats;
    *n = c->n_chats;
    return rc;
}

int conversation_export(struct conversation *c, const char *path, bool replace, struct error *e)
{
    return chat_export(&c->exports, &c->transcript, path, replace, e);
}

static void save_turn(struct conversation *c)
{
    struct error e = {0};
    int rc = autosave_write_turn(&c->autosave, &c->transcript, &e);

    if (rc < 0 && !c->save_said)
        conversation_say(c, SAY_TROUBLE, "this chat could not be saved: %s", e.text);
    c->save_said = rc < 0;
}

static void entry_added(struct conversation *c)
{
    if (c->hooks.added)
        c->hooks.added(c->hooks.ctx, &c->transcript.entries[c->transcript.n - 1]);
}

static void transcript_changed(struct conversation *c)
{
    save_turn(c);
    if (c->hooks.changed)
        c->hooks.changed(c->hooks.ctx);
}

/* A worker that has gone need not hear it; one that could not be told is said. */
static void notify_worker(struct conversation *c, struct command k)
{
    struct error e = {0};

    if (c->worker && worker_send(c->worker, &k, &e) == ERR_MEMORY)
        conversation_say(c, SAY_TROUBLE, "%s: the engine goes on as before", e.text);
}

static void sampling_send(struct conversation *c)
{
    struct command k = {.kind = COMMAND_SAMPLING};

    sampling_from_options(c->options, &k.sampling);
    notify_worker(c, k);
}

static void pace_send(struct conversation *c)
{
    c->paced |= c->pace > 0;
    notify_worker(c, (struct command){.kind = COMMAND_PACE, .number = c->pace});
}

int conversation_open(struct conversation **out, struct options *o,
                      const struct conversation_hooks *hooks, struct error *e)
{
    struct conversation *c = mem_alloc(1, sizeof *c);
    char *text = NULL;
    int rc;

    if (!c)
        return error_set(e, ERR_MEMORY, "out of memory");
    c->options = o;
    c->auto_asked = o->place && strcmp(o->place, "auto") == 0;
    c->hooks = *hooks;
    autosave_init(&c->autosave);
    transcript_init(&c->transcript);
    c->pace = c->pace_asked = pace_from_options(o, true);
    if ((rc = prompt_system(o, &text, e)) >= 0 &&
        (rc = transcript_system(&c->transcript, text, e)) >= 0 &&
        (rc = engine_setup_prepare(o, &c->setup, false, e)) >= 0 &&
        (rc = stats_open(&c->stats, o, e)) >= 0)
        rc = transcript_model(&c->transcript, c->setup.model_path, e);
    mem_free(text);
    c->setup.config.pace = c->pace;
    if (rc < 0 || (rc = worker_start(&c->worker, &c->setup.config, e)) < 0) {
        engine_setup_release(&c->setup);
        stats_release(&c->stats);
        transcript_release(&c->transcript);
        mem_free(c);
        return rc;
    }
    begin_file(c);
    *out = c;
    return 0;
}

int conversation_close(struct conversation *c, struct error *e)
{
    int rc;

    if (!c)
        return 0;
    if (c->busy)
        worker_cancel(c->worker);
    if (conversation_stats(c))
        stats_finish(&c->stats, c->options, stderr, e);
    worker_stop(c->worker);
    c->worker = NULL;
    engine_setup_release(&c->setup);
    /* what had been shown of the last answer */
    if (c->busy && c->transcript.n) {
        struct transcript_entry *last = &c->transcript.entries[c->transcript.n - 1];

        transcript_text(&c->transcript, c->transcript.n - 1, c->answer.data ? c->answer.data : "",
                        e);
        snprintf(last->stop, sizeof last->stop, "%s", stop_reason_word(STOP_CANCELLED));
    }
    rc = conversation_save(c, e);
    if (c->failure.code < 0) {
        *e = c->failure;
        rc = c->failure.code;
    }
    autosave_release(&c->autosave, rc == 0);
    stats_release(&c->stats);
    strbuf_release(&c->answer);
    transcript_release(&c->transcript);
    mem_free(c->waiting);
    mem_free(c->chats);
    mem_free(c);
    return rc;
}

int conversation_fd(const struct conversation *c)
{
    return worker_event_fd(c->worker);
}

static void answer_ended(struct conversation *c, enum stop_reason stop)
{
    struct error e = {0};
    struct transcript_entry *last;

    if (!c->busy)
        return;
    c->busy = false;
    if (c->answer.failed)
        conversation_say(c, SAY_TROUBLE,
                         "out of memory: what is kept of this answer is not all of it");
    if (!c->transcript.n)
        return;
    if (transcript_text(&c->transcript, c->transcript.n - 1, c->answer.data ? c->answer.data : "",
                        &e) < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    last = &c->transcript.entries[c->transcript.n - 1];
    snprintf(last->stop, sizeof last->stop, "%s", stop_reason_word(stop));
    save_turn(c);
}

/* The newest answer is computed under the plan in force from its next token on. */
static void answer_placed(struct conversation *c)
{
    struct error e = {0};

    if (c->busy && c->transcript.n && c->plan[0] &&
        transcript_placed(&c->transcript, c->transcript.n - 1, c->plan, c->answered + 1, &e) < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
}

/* What /continue adds is counted with what was there. */
static void answer_measured(struct conversation *c, const struct turn_done_event *d)
{
    struct transcript_entry *last = &c->transcript.entries[c->transcript.n - 1];
    double before = last->tok_s > 0 ? last->tokens / last->tok_s : 0,
           now = clock_seconds(d->decode_ns);
    double waited = clock_seconds(d->total_ns) - clock_seconds(d->prefill_ns) - now;
    int steps = d->completion_tokens > 1 ? d->completion_tokens - 1 : 0;

    last->paced |= c->paced && waited > PACED_SHARE * clock_seconds(d->total_ns);
    last->seconds += clock_seconds(d->total_ns);
    last->tok_s = before + now > 0 && steps
                      ? ((before > 0 ? last->tokens : 0) + steps) / (before + now)
                      : last->tok_s;
    last->tokens += d->completion_tokens;
}

/* Text is on the disk before it is shown. */
static void part_write(struct conversation *c)
{
    struct error e = {0};

    if (!c->busy || autosave_part_write(&c->autosave, c->answer.data, c->answer.len, &e) == 0)
        return;
    if (!c->save_said)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    c->save_said = true;
}

static void remark_say(void *ctx, const char *line)
{
    conversation_say(ctx, SAY_NOTICE, "%s", line);
}

/* A transcript holds C strings: what a model says after a NUL must not be lost with it. */
static void put_answer(struct strbuf *answer, const char *text, size_t n)
{
    while (n) {
        size_t part = strnlen(text, n);

        strbuf_put(answer, text, part);
        if (part < n) {
            strbuf_puts(answer, "\xef\xbf\xbd");
            part++;
        }
        text += part;
        n -= part;
    }
}

/* Each that a command asked for is told once, also where a later one is under way already. */
static void placed(struct conversation *c, const struct event *ev)
{
    log_write(LOG_LEVEL_INFO, "placement: %s", ev->text ? ev->text : "");
    snprintf(c->plan, sizeof c->plan, "%s", ev->text ? ev->text : "");
    answer_placed(c);
    if (ev->wishes > c->places_answered && c->place_told > c->places_answered)
        conversation_say(c, SAY_NOTICE, "the placement is %s now", c->plan);
    c->places_answered = ev->wishes;
}

static void on_event(struct conversation *c, const struct event *ev)
{
    switch (ev->kind) {
    case EVENT_READY: {
        const struct telemetry *t = worker_telemetry(c->worker);

        c->ready = true;
        if (!c->plan[0] && t)
            snprintf(c->plan, sizeof c->plan, "%s", t->plan);
        remarks_each(c->options, worker_info(c->worker), remark_say, c);
        break;
    }
    case EVENT_TURN_STARTED:
        stats_begin_turn(&c->stats);
        answer_placed(c);
        break;
    case EVENT_TOKEN:
        c->answered += ev->token.id >= 0;
        put_answer(&c->answer, ev->token.text, ev->token.len);
        part_write(c);
        break;
    case EVENT_TURN_DONE:
        stats_add_turn(&c->stats, &ev->done_turn);
        if (c->busy && c->transcript.n)
            answer_measured(c, &ev->done_turn);
        log_write(LOG_LEVEL_INFO, "answer: %d tokens in %.3f s, %s",
                  ev->done_turn.completion_tokens, clock_seconds(ev->done_turn.total_ns),
                  stop_reason_word(ev->done_turn.reason));
        answer_ended(c, ev->done_turn.reason);
        break;
    case EVENT_PLAN: placed(c, ev); break;
    case EVENT_ERROR:
        if (!c->ready && !c->failure.code)
            error_set(&c->failure, ev->failure.code < 0 ? ev->failure.code : ERR_MODEL, "%s",
                      ev->text ? ev->text : "the model cannot be read");
        answer_ended(c, STOP_ERROR);
        break;
    case EVENT_REPORT:
        c->calls -= c->calls > 0;
        c->measuring = c->measuring && c->calls > 0;
        if (c->hooks.say && ev->text)
            c->hooks.say(c->hooks.ctx, SAY_OUTPUT, ev->text);
        break;
    case EVENT_STOPPED:
        answer_ended(c, STOP_ERROR);
        c->calls = 0;
        c->worker_gone = true;
        break;
    default: break;
    }
}

static int turn_send(struct conversation *c, bool go_on)
{
    struct command k = {.kind = COMMAND_TURN};
    struct error e = {0};

    if (turn_make(c->options, &c->transcript, go_on, &k.turn, &e) < 0) {
        command_release(&k);
    } else {
        k.turn.probabilities = true;
        if (worker_send(c->worker, &k, &e) == 0)
            return 0;
    }
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

int conversation_answer(struct conversation *c, bool go_on)
{
    struct error e = {0};

    c->editing = false;
    c->paced = c->pace > 0;
    strbuf_clear(&c->answer);
    if (go_on)
        strbuf_puts(&c->answer, c->transcript.entries[c->transcript.n - 1].text);
    else if (transcript_append(&c->transcript, ROLE_ASSISTANT, "", &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    if (turn_send(c, go_on) < 0) {
        if (!go_on)
            transcript_truncate(&c->transcript, c->transcript.n - 1);
        return -1;
    }
    c->busy = true;
    c->answered = c->transcript.entries[c->transcript.n - 1].tokens;
    autosave_part_begin(&c->autosave);
    part_write(c);
    entry_added(c);
    return 0;
}

/* ---- what a GPU is worth, measured after an answer ---- */

static int do_auto(void *ctx, struct engine *g, char **text, struct error *e)
{
    const char *place = ctx; /* "auto" when that was asked for */

    if (!place_auto_due(g, place))
        return 0;
    engine_tell(g, "measuring what a GPU is worth with this model: a message or Ctrl-C stops it");
    return place_auto(g, strcmp(place, "auto") == 0, e);
}

/* Once, when auto was asked for or a real GPU is used for the first time; never before an answer
 * has been given. */
static void measure_after(struct conversation *c)
{
    const struct engine_info *info = conversation_info(c);
    const struct telemetry *t = worker_telemetry(c->worker);

    for (int d = 1; t && info && d < t->n_devices && !c->auto_done; d++)
        c->auto_wanted |= !info->devices[d].is_cpu_type;
    c->auto_wanted |= c->auto_asked;
    if (!c->auto_wanted || c->auto_done || c->busy || c->calls || c->waiting || !c->stats.turns)
        return;
    c->auto_done = true;
    c->measuring = conversation_call(c, do_auto, (void *)(c->auto_asked ? "auto" : ""), NULL) == 0;
}

/* What is edited and all behind it goes, now that something takes its place. */
static void edit_cut(struct conversation *c)
{
    size_t at = transcript_last(&c->transcript, ROLE_USER);

    if (c->editing && at < c->transcript.n)
        conversation_truncate(c, at);
    c->editing = false;
}

static int message_send(struct conversation *c, const char *text)
{
    struct error e = {0};

    edit_cut(c);
    /* it gets out of the way, and is tried again after this answer */
    if (c->measuring) {
        worker_cancel(c->worker);
        c->auto_done = false;
    }
    if (transcript_append(&c->transcript, ROLE_USER, text, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    entry_added(c);
    save_turn(c);
    return conversation_answer(c, false);
}

static void waiting_send(struct conversation *c)
{
    char *text = c->waiting;

    if (!text || !c->ready || c->busy || c->worker_gone)
        return;
    c->waiting = NULL;
    message_send(c, text);
    mem_free(text);
}

void conversation_pump(struct conversation *c)
{
    struct event ev;

    while (worker_next_event(c->worker, &ev) == 1) {
        on_event(c, &ev);
        if (c->hooks.event)
            c->hooks.event(c->hooks.ctx, &ev);
        event_release(&ev);
    }
    waiting_send(c);
    measure_after(c);
}

int conversation_submit(struct conversation *c, const char *text)
{
    if (!text[strspn(text, " \t\n")])
        return 0;
    if (c->worker_gone || (c->failure.code && !c->ready)) {
        conversation_say(c, SAY_TROUBLE, "there is no engine to answer; /quit ends");
        return -1;
    }
    if (c->busy || !c->ready) {
        if (c->waiting) {
            conversation_say(c, SAY_NOTICE, "one message is waiting already; %s takes it back",
                             c->hooks.keys ? "Esc" : "Ctrl-C");
            return -1;
        }
        if ((c->waiting = mem_string(text)))
            return 0;
        conversation_say(c, SAY_TROUBLE, "out of memory: the message was not taken");
        return -1;
    }
    return message_send(c, text);
}

void conversation_stop(struct conversation *c)
{
    worker_cancel(c->worker);
}

bool conversation_working(const struct conversation *c)
{
    return c->busy || c->calls > 0;
}

bool conversation_busy(const struct conversation *c)
{
    return c->busy;
}

bool conversation_ready(const struct conversation *c)
{
    return c->ready;
}

bool conversation_over(const struct conversation *c)
{
    return c->over || (c->worker_gone && !c->ready);
}

void conversation_quit(struct conversation *c)
{
    c->over = true;
}

const char *conversation_waiting(const struct conversation *c)
{
    return c->waiting;
}

char *conversation_unqueue(struct conversation *c)
{
    char *text = c->waiting;

    c->waiting = NULL;
    return text;
}

/* What only a loaded model can do. 0, or -1: said why. */
static int command_send(struct conversation *c, struct command *k)
{
    struct error e = {0};

    if (!conversation_info(c)) {
        conversation_say(c, SAY_NOTICE, "not yet: the model is still loading");
        command_release(k);
        return -1;
    }
    if (worker_send(c->worker, k, &e) == 0)
        return 0;
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

int conversation_expert(struct conversation *c, int layer, int expert)
{
    struct command k = {.kind = COMMAND_EXPERT, .expert = {layer, expert}};

    return command_send(c, &k);
}

int conversation_call(struct conversation *c,
                      int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                      void *ctx, void (*release)(void *ctx))
{
    struct command k = {.kind = COMMAND_CALL, .call = {fn, release, ctx}};
    int rc = command_send(c, &k);

    c->calls += rc == 0;
    return rc;
}

int conversation_place(struct conversation *c, const char *spec)
{
    const struct engine_info *info = conversation_info(c);
    struct command k = {.kind = COMMAND_PLACE};
    struct plan *plan = NULL;
    struct error e = {0};
    char name[64];
    int rc = info ? place_resolve(spec, info, &plan, &e) : 0;

    if (rc < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    snprintf(name, sizeof name, "%s", plan ? plan->name : spec);
    if (rc == 1) {
        k.kind = COMMAND_PLAN;
        k.plan = plan;
    } else {
        if (!(k.text = mem_string(spec))) {
            conversation_say(c, SAY_TROUBLE, "out of memory: the placement stays as it is");
            return -1;
        }
        if (info && strcmp(spec, "auto") == 0) {
            c->auto_asked = true;
            c->auto_done = false;
        }
    }
    if ((rc = command_send(c, &k)) < 0)
        return rc;
    c->places_sent++;
    if (c->hooks.placing)
        c->hooks.placing(c->hooks.ctx, name, c->places_sent);
    return 0;
}

int conversation_place_told(struct conversation *c, const char *spec)
{
    if (conversation_place(c, spec) < 0)
        return -1;
    c->place_told = c->places_sent;
    if (!c->hooks.keys) /* the screen shows what it waits for */
        conversation_say(c, SAY_NOTICE, "switching the placement to %s ...", spec);
    return 0;
}

void conversation_timeline(struct conversation *c, bool on)
{
    if (c->ready)
        notify_worker(c, (struct command){.kind = COMMAND_TIMELINE, .number = on});
}

void conversation_pace_toggle(struct conversation *c)
{
    c->pace = c->pace > 0 ? 0 : c->pace_asked > 0 ? c->pace_asked : PACE_DEFAULT;
    pace_send(c);
}

double conversation_pace(const struct conversation *c)
{
    return c->pace;
}

void conversation_apply(struct conversation *c, const struct option *option)
{
    size_t id = (size_t)(option - option_table);

    if (id == OPTION_ID_pace) {
        c->pace = c->options->pace;
        if (c->pace > 0)
            c->pace_asked = c->pace;
        pace_send(c);
    } else if (id != OPTION_ID_place) { /* that one was asked for before it was set */
        sampling_send(c);
    }
    if (c->hooks.set)
        c->hooks.set(c->hooks.ctx, option);
}

void conversation_edit(struct conversation *c)
{
    size_t at = transcript_last(&c->transcript, ROLE_USER);

    c->editing = true;
    conversation_say(
        c, SAY_NOTICE,
        "Enter sends it in place of your last message; Ctrl-C leaves everything as it is");
    c->hooks.edit(c->hooks.ctx, c->transcript.entries[at].text);
}

bool conversation_edit_end(struct conversation *c)
{
    if (!c->editing)
        return false;
    c->editing = false;
    conversation_say(c, SAY_NOTICE, "your last message stays as it was");
    return true;
}

int conversation_truncate(struct conversation *c, size_t n)
{
    c->editing = false;
    transcript_truncate(&c->transcript, n);
    transcript_changed(c);
    return 0;
}

int conversation_system(struct conversation *c, const char *text)
{
    struct error e = {0};

    if (transcript_system(&c->transcript, text, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    transcript_changed(c);
    return 0;
}

void conversation_new(struct conversation *c)
{
    size_t keep = c->transcript.n && c->transcript.entries[0].role == ROLE_SYSTEM ? 1 : 0;

    save_turn(c);
    c->editing = false;
    transcript_truncate(&c->transcript, keep);
    begin_file(c);
    notify_worker(c, (struct command){.kind = COMMAND_CLEAR});
    transcript_changed(c);
}

int conversation_load(struct conversation *c, const char *path, struct error *e)
{
    int rc;

    save_turn(c);
    if ((rc = transcript_load(&c->transcript, path, e)) < 0)
        return rc;
    c->editing = false;
    autosave_recover(&c->transcript, path);
    /* going on leaves the file that was read as it is */
    begin_file(c);
    transcript_changed(c);
    return 0;
}

const struct transcript *conversation_transcript(const struct conversation *c)
{
    return &c->transcript;
}

const struct telemetry *conversation_telemetry(struct conversation *c)
{
    return c->worker ? worker_telemetry(c->worker) : NULL;
}

const struct engine_info *conversation_info(const struct conversation *c)
{
    return c->worker && c->ready ? worker_info(c->worker) : NULL;
}

const struct stats *conversation_stats(struct conversation *c)
{
    const struct engine_info *info = conversation_info(c);
    const struct telemetry *t = conversation_telemetry(c);

    if (!info || !t)
        return NULL;
    stats_take(&c->stats, info, t);
    return &c->stats;
}

struct options *conversation_options(struct conversation *c)
{
    return c->options;
}

const char *conversation_path(const struct conversation *c)
{
    return c->autosave.path;
}

const struct conversation_hooks *conversation_hooks(const struct conversation *c)
{
    return &c->hooks;
}
