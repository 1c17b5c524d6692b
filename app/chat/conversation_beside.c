/* --beside: a second engine (another quantisation, adapter, plan or family) that answers each
 * message after the chat's own, with the same seed and settings, by turns on the same machine;
 * where the two part is printed, and /vote keeps which of them was better. The second one's answers
 * are not in the transcript: both go on from the chat's. Its worker starts when the chat's model is
 * loaded. UI thread. */
#include "app/chat/internal.h"

#include "app/chat/turn.h"
#include "app/common/paths.h"
#include "app/lab/said.h"
#include "app/lab/second.h"
#include "app/setup/fit_remedy.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct beside {
    struct options options;
    struct engine_setup *setup; /* NULL: its engine is not open */
    struct worker *worker;
    struct client *client;
    struct prompter prompter;
    bool ready, failed; /* it is loaded; it cannot be, or has stopped */
    bool due;           /* it answers next, as soon as it can */
    bool skip;          /* the chat's answer continues an earlier one: it has no second */
    uint64_t seed;      /* of the chat's answer */
    struct said first, second;
    json_t *messages; /* the ones that both answered, for /vote; NULL: there is no comparison */
};

/* ---- opening and closing ---- */

int conversation_beside_open(struct conversation *c, struct error *e)
{
    const struct options *o = c->options;
    struct beside *b;

    if (!second_wanted(o))
        return 0;
    if (!(b = c->beside = mem_alloc(1, sizeof *b)))
        return error_set(e, ERR_MEMORY, "out of memory");
    return second_options(&b->options, o, e);
}

static void second_close(struct beside *b)
{
    prompter_release(&b->prompter);
    if (b->worker)
        worker_stop(b->worker);
    if (b->setup)
        engine_setup_release(b->setup);
    mem_free(b->setup);
    b->worker = NULL;
    b->client = NULL;
    b->setup = NULL;
    b->ready = false;
}

void conversation_beside_close(struct conversation *c)
{
    struct beside *b = c->beside;

    if (!b)
        return;
    second_close(b);
    said_release(&b->first);
    said_release(&b->second);
    json_decref(b->messages);
    options_release(&b->options);
    mem_free(b);
    c->beside = NULL;
    c->beside_busy = false;
}

static void give_up(struct conversation *c, const char *why)
{
    struct beside *b = c->beside;

    b->failed = true;
    b->due = c->beside_busy = false;
    second_close(b);
    conversation_say(c, SAY_TROUBLE, "--beside: %s; the chat goes on without it", why);
}

static int second_open(struct conversation *c, struct error *e)
{
    struct beside *b = c->beside;
    char line[300] = "";
    int rc;

    if (!(b->setup = mem_alloc(1, sizeof *b->setup)))
        return error_set(e, ERR_MEMORY, "out of memory");
    if ((rc = engine_setup_init(&b->options, b->setup, e)) < 0) {
        mem_free(b->setup);
        b->setup = NULL;
        return rc;
    }
    if (!b->options.force &&
        (rc = fit_admit(&b->setup->config, b->setup->page_auto, 0, line, sizeof line, e)) < 0)
        return rc;
    if (line[0])
        conversation_say(c, SAY_NOTICE, "--beside: %s", line);
    if ((rc = worker_start(&b->worker, &b->setup->config, e)) < 0)
        return rc;
    b->client = worker_client(b->worker);
    return 0;
}

int conversation_beside_fd(const struct conversation *c)
{
    return c->beside && c->beside->client ? client_event_fd(c->beside->client) : -1;
}

/* ---- an answer ---- */

void conversation_beside_begin(struct conversation *c, bool go_on, uint64_t seed)
{
    struct beside *b = c->beside;

    if (!b || b->failed)
        return;
    said_begin(&b->first);
    second_name(c->setup->model_path, NULL, b->first.name, sizeof b->first.name);
    b->seed = seed;
    b->skip = go_on;
    b->due = false;
    json_decref(b->messages);
    b->messages = NULL;
}

void conversation_beside_note(struct conversation *c, const struct event *ev)
{
    struct beside *b = c->beside;
    struct error e = {0};

    if (!b || b->failed || b->skip || !c->busy || c->compacting)
        return;
    said_note(&b->first, ev);
    if (ev->kind != EVENT_TURN_DONE)
        return;
    /* an answer that was stopped, or calls tools, has no second one */
    b->due = b->first.end.reason == STOP_TOKEN || b->first.end.reason == STOP_STRING ||
             b->first.end.reason == STOP_LENGTH;
    c->beside_busy = b->due;
    if (conversation_telemetry(c) && said_experts(&b->first, conversation_telemetry(c), &e) < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
}

static void show(struct conversation *c, const char *name, const char *text, size_t n)
{
    if (c->hooks.beside)
        c->hooks.beside(c->hooks.ctx, name, text, n);
}

static void wake(void *ctx)
{
    client_wake(ctx);
}

/* The messages as the API of OpenAI has them. */
static json_t *messages_json(const struct dialogue *d)
{
    json_t *list = json_array();

    for (size_t i = 0; i < d->n_messages; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", role_word(d->messages[i].role),
                                              "content", d->messages[i].text));
    return list;
}

/* The chat's answer is the transcript's last entry; the second one is asked what it was asked. */
static int ask(struct conversation *c, struct error *e)
{
    struct beside *b = c->beside;
    struct dialogue said = {0};
    struct turn turn = {.probabilities = true, .logprobs = true, .top_logprobs = SAID_LIKELY};
    int rc = turn_make(&b->options, &c->transcript, false, &said, &turn, e);

    if (rc == 0)
        rc = conversation_tell(c, &said, false, e);
    if (rc < 0) {
        dialogue_release(&said);
        turn_release(&turn);
        return rc;
    }
    turn.sampling.seed = b->seed;
    b->messages = messages_json(&said);
    said_begin(&b->second);
    second_name(b->setup->model_path, &b->options.beside_set, b->second.name,
                sizeof b->second.name);
    show(c, b->second.name, "", 0);
    return prompter_start(&b->prompter, worker_info(b->worker), &said, &turn, wake, b->client, e);
}

static void compare(struct conversation *c)
{
    struct beside *b = c->beside;
    struct strbuf out = {0};
    said_print(&b->first, conversation_info(c), &b->second, worker_info(b->worker), &out);
    strbuf_puts(&out, "/vote 1, 2, both or neither keeps which was better\n");
    if (c->hooks.say && out.data)
        c->hooks.say(c->hooks.ctx, SAY_OUTPUT, out.data);
    strbuf_release(&out);
}

static void answered(struct conversation *c, bool whole)
{
    struct beside *b = c->beside;
    const struct telemetry *t = b->worker ? worker_telemetry(b->worker) : NULL;
    struct error e = {0};

    c->beside_busy = false;
    if (whole && t && said_experts(&b->second, t, &e) < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    if (!whole) {
        json_decref(b->messages);
        b->messages = NULL;
    }
    show(c, NULL, NULL, 0);
    if (whole)
        compare(c);
}

/* ---- its events ---- */

static void handle(struct conversation *c, const struct event *ev)
{
    struct beside *b = c->beside;

    said_note(&b->second, ev);
    switch (ev->kind) {
    case EVENT_READY: b->ready = true; break;
    case EVENT_TOKEN:
        if (ev->token.len && ev->token.part != PART_REASONING)
            show(c, b->second.name, ev->token.text, ev->token.len);
        break;
    case EVENT_TURN_DONE: answered(c, ev->done_turn.reason != STOP_CANCELLED); break;
    case EVENT_NOTICE:
        if (ev->text)
            conversation_say(c, SAY_NOTICE, "--beside: %s", ev->text);
        break;
    case EVENT_ERROR:
    case EVENT_STOPPED:
        if (!b->ready || ev->kind == EVENT_STOPPED) {
            if (!b->failed)
                give_up(c, ev->text ? ev->text : "its engine has stopped");
            break;
        }
        conversation_say(c, SAY_TROUBLE, "--beside: %s", ev->text ? ev->text : "its answer failed");
        if (c->beside_busy)
            answered(c, false);
        break;
    default: break;
    }
}

/* Sends its turn once the prompt is made. */
static void prompt_take(struct conversation *c)
{
    struct beside *b = c->beside;
    struct command k = {.kind = COMMAND_TURN};
    struct error e = {0};
    uint64_t start_ns;
    int rc;

    if (!prompter_take(&b->prompter, &k.turn, &rc, &start_ns, &e))
        return;
    if (rc == 0 && !atomic_load(&b->prompter.unwanted))
        rc = client_send(b->client, &k, &e);
    else if (rc == 0) {
        command_release(&k);
        rc = ERR_CANCELLED;
    }
    if (rc == 0)
        return;
    if (rc != ERR_CANCELLED)
        conversation_say(c, SAY_TROUBLE, "--beside: %s", e.text);
    answered(c, false);
}

void conversation_beside_pump(struct conversation *c)
{
    struct beside *b = c->beside;
    struct event ev;
    struct error e = {0};

    if (!b || b->failed || !c->ready)
        return;
    if (!b->worker && second_open(c, &e) < 0) {
        give_up(c, e.text);
        return;
    }
    while (b->client && client_next_event(b->client, &ev) == 1) {
        handle(c, &ev);
        event_release(&ev);
    }
    if (!b->client)
        return;
    prompt_take(c);
    if (b->due && !c->busy && (c->tools.due || round_on(&c->tools.round)))
        b->due = c->beside_busy = false;
    if (!b->due || !b->ready || c->busy)
        return;
    b->due = false;
    if (ask(c, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "--beside: %s", e.text);
        answered(c, false);
    }
}

void conversation_beside_stop(struct conversation *c)
{
    struct beside *b = c->beside;

    if (!b || !c->beside_busy)
        return;
    if (b->due) { /* it had not begun */
        b->due = c->beside_busy = false;
        return;
    }
    prompter_stop(&b->prompter);
    client_cancel(b->client);
}

const struct said *conversation_beside_said(const struct conversation *c, bool second)
{
    const struct beside *b = c->beside;

    return !b || !b->messages || c->beside_busy ? NULL : second ? &b->second : &b->first;
}

/* ---- /vote ---- */

static json_t *answer_json(const struct said *s)
{
    return json_pack("[{s:s, s:s}]", "role", "assistant", "content", strbuf_text(&s->text));
}

/* A row that trainers on preferences read: prompt, chosen, rejected; no choice: answers. */
static json_t *vote_json(const struct beside *b, const char *vote, const char *why)
{
    const struct said *better = *vote == '2' ? &b->second : &b->first,
                      *worse = *vote == '2' ? &b->first : &b->second;
    json_t *row = json_pack("{s:O}", "prompt", b->messages);
    time_t now = time(NULL);
    struct tm utc;
    char stamp[32];

    if (*vote == '1' || *vote == '2') {
        json_object_set_new(row, "chosen", answer_json(better));
        json_object_set_new(row, "rejected", answer_json(worse));
    } else {
        json_object_set_new(row, "answers",
                            json_pack("[o, o]", answer_json(&b->first), answer_json(&b->second)));
    }
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_object_set_new(row, "vote", json_string(vote));
    json_object_set_new(row, "models", json_pack("[s, s]", b->first.name, b->second.name));
    json_object_set_new(row, "seed", json_integer((json_int_t)b->seed));
    json_object_set_new(row, "time", json_string(stamp));
    if (*why)
        json_object_set_new(row, "why", json_string(why));
    return row;
}

static int votes_path(const struct options *o, char *out, size_t size, struct error *e)
{
    size_t n;

    if (o->votes) {
        snprintf(out, size, "%s", o->votes);
        return 0;
    }
    paths_home("STATE", out, size);
    if (!*out)
        return error_set(e, ERR_IO, "there is no home for votes.jsonl; --votes FILE names a file");
    if (file_make_folders(out, e) < 0)
        return ERR_IO;
    n = strlen(out);
    snprintf(out + n, size - n, "/votes.jsonl");
    return 0;
}

/* One write, so that a line is whole. */
static int append(const char *path, json_t *row, struct error *e)
{
    char *line = row ? json_dumps(row, JSON_COMPACT) : NULL;
    size_t n = line ? strlen(line) : 0;
    int fd, rc = 0;

    json_decref(row);
    if (!line)
        return error_set(e, ERR_MEMORY, "out of memory");
    line[n] = '\n'; /* in place of the end */
    if ((fd = file_open_write(path, O_CREAT | O_APPEND, 0600, e)) < 0)
        rc = fd;
    else {
        if (write(fd, line, n + 1) != (ssize_t)(n + 1))
            rc = error_set(e, ERR_IO, "%s cannot be written: %s", path, strerror(errno));
        if (close(fd) < 0 && rc == 0)
            rc = error_set(e, ERR_IO, "%s cannot be written: %s", path, strerror(errno));
    }
    free(line);
    return rc;
}

int conversation_vote(struct conversation *c, const char *vote, const char *why)
{
    struct beside *b = c->beside;
    char path[4096];
    struct error e = {0};

    if (!b) {
        conversation_say(c, SAY_NOTICE,
                         "/vote chooses between two answers: --beside MODEL makes "
                         "the second one");
        return -1;
    }
    if (!b->messages || c->beside_busy) {
        conversation_say(c, SAY_NOTICE, "there are not two answers to choose between");
        return -1;
    }
    if (votes_path(c->options, path, sizeof path, &e) < 0 ||
        append(path, vote_json(b, vote, why), &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    conversation_say(c, SAY_NOTICE, "kept in %s", path);
    return 0;
}
