/* See answer.h. A stream is complete at its [DONE], or a finish reason: not every server sends
 * both. Tool calls in separate fields are reported as a part of the answer, each as the JSON object
 * that most models write. */
#include "app/connect/answer.h"

#include "app/common/web.h"
#include "app/connect/mend.h"
#include "app/connect/sse.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TRIES 5
#define PATIENCE 60          /* longest Retry-After in seconds that is respected */
#define AFTER_SECONDS 5      /* wait after a finish reason for usage and [DONE] */
#define TOLD_WAIT_SECONDS 2L /* longer pauses are reported */

struct coming {
    const struct server *server;
    const struct answer_listener *to;
    struct sse sse;
    struct turn_done_event done;
    uint64_t start_ns, first_ns, last_ns, over_ns;
    int call;      /* the current tool call, counted from 1; 0: none */
    bool argued;   /* part of its arguments arrived */
    int pieces;    /* pieces of text, counted as tokens if the server does not report them */
    bool counted;  /* the server reported the number of tokens */
    bool started;  /* TURN_STARTED was sent */
    bool over;     /* [DONE], or a finish reason */
    bool enough;   /* … and nothing followed for a while */
    bool unwanted; /* cancelled by on_event */
    bool half;     /* the stream ended within an event */
    struct error failure;
};

/* ---- events ---- */

static void tell(struct coming *c, struct event *ev)
{
    if (!c->unwanted && c->to->on_event(c->to->ctx, ev) != 0)
        c->unwanted = true;
}

static void tell_start(struct coming *c)
{
    struct event ev = {.kind = EVENT_TURN_STARTED};

    if (c->started)
        return;
    c->started = true;
    ev.progress.total = (uint64_t)c->done.prompt_tokens;
    tell(c, &ev);
}

/* As much text as an event can hold, without splitting a character. */
static size_t part_of(const char *text, size_t n)
{
    size_t most = sizeof((struct token_event *)0)->text - 1, part = n < most ? n : most;

    while (part < n && part > most - 4 && ((unsigned char)text[part] & 0xc0) == 0x80)
        part--;
    return part;
}

static void tell_bytes(struct coming *c, enum answer_part part, const char *text, size_t n)
{
    if (!n)
        return;
    tell_start(c);
    c->last_ns = clock_now();
    for (bool first = !c->first_ns; n && !c->unwanted; first = false) {
        struct event ev = {.kind = EVENT_TOKEN};
        size_t len = part_of(text, n);

        ev.token.id = -1;
        ev.token.part = part;
        ev.token.first = first;
        ev.token.len = (uint16_t)len;
        memcpy(ev.token.text, text, len);
        tell(c, &ev);
        text += len;
        n -= len;
    }
    if (!c->first_ns)
        c->first_ns = c->last_ns;
    c->pieces++;
}

/* A text, or a list of parts with texts (Mistral's), where reasoning is a separate part. */
static void tell_text(struct coming *c, enum answer_part part, const json_t *v)
{
    const json_t *thought = json_object_get(v, "thinking"), *entry;
    size_t i;

    if (json_is_string(v))
        tell_bytes(c, part, json_string_value(v), json_string_length(v));
    json_array_foreach(v, i, entry) tell_text(c, part, entry);
    if (thought)
        tell_text(c, PART_REASONING, thought);
    else if (json_is_object(v) && json_is_string(json_object_get(v, "text")))
        tell_text(c, part, json_object_get(v, "text"));
}

/* ---- calls of tools ---- */

static void tell_call(struct coming *c, const char *text)
{
    int pieces = c->pieces; /* our own text does not count */

    tell_bytes(c, PART_TOOL_CALL, text, strlen(text));
    c->pieces = pieces;
}

static void end_call(struct coming *c)
{
    if (!c->call)
        return;
    tell_call(c, c->argued ? "}" : "{}}");
    c->call = 0;
}

static void begin_call(struct coming *c, int number, const json_t *name)
{
    char *quoted = json_dumps(name, JSON_ENCODE_ANY);

    end_call(c);
    c->call = number;
    c->argued = false;
    tell_call(c, number > 1 ? "\n{\"name\": " : "{\"name\": ");
    tell_call(c, quoted ? quoted : "\"\"");
    tell_call(c, ", \"arguments\": ");
    free(quoted); /* allocated by jansson */
}

/* A delta of a call: its name is sent once, its arguments as pieces of JSON, or as an object. */
static void take_call(struct coming *c, const json_t *call, size_t at)
{
    const json_t *number = json_object_get(call, "index"), *f = json_object_get(call, "function"),
                 *name = json_object_get(f, "name"), *v = json_object_get(f, "arguments");
    json_int_t i = json_is_integer(number) ? json_integer_value(number) : (json_int_t)at;
    char *text = NULL;

    if (i < 0 || i > 1000)
        return;
    c->pieces++;
    if (c->call != (int)i + 1 && json_string_length(name))
        begin_call(c, (int)i + 1, name);
    if (c->call != (int)i + 1)
        return;
    if (json_is_object(v) && (text = json_dumps(v, 0))) {
        tell_call(c, text);
        c->argued = true;
    } else if (json_string_length(v)) {
        tell_call(c, json_string_value(v));
        c->argued = true;
    }
    free(text);
}

static void take_calls(struct coming *c, const json_t *delta)
{
    const json_t *call;
    size_t i;

    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) take_call(c, call, i);
}

/* ---- chunks ---- */

static int count(const json_t *o, const char *path)
{
    const json_t *v = json_walk(o, path);

    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) < 1 << 30
               ? (int)json_integer_value(v)
               : 0;
}

static void take_usage(struct coming *c, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    c->counted = json_is_integer(json_object_get(usage, "completion_tokens")) &&
                 json_integer_value(json_object_get(usage, "completion_tokens")) >= 0;
    c->done.prompt_tokens = count(usage, "prompt_tokens");
    c->done.completion_tokens = count(usage, "completion_tokens");
    c->done.cached_tokens = count(usage, "prompt_tokens_details.cached_tokens");
}

static void take_finish(struct coming *c, const char *why)
{
    static const struct {
        const char *word, *text;
    } failures[] = {
        {"abort", "it ended the answer before its end"},
        {"error", "it says that it failed"},
        {"content_filter", "its content filter ended the answer"},
    };

    end_call(c);
    c->over = true;
    c->over_ns = clock_now();
    c->done.reason = strcmp(why, "length") == 0 ? STOP_LENGTH : STOP_TOKEN;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (strcmp(why, failures[i].word) == 0)
            error_set(&c->failure, ERR_IO, "%s", failures[i].text);
}

/* A delta of a stream, or the message of an unstreamed answer. */
static void take_choice(struct coming *c, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    const json_t *thought;

    if (!delta)
        delta = json_object_get(choice, "message");
    thought = json_object_get(delta, "reasoning_content");
    if (!thought || json_is_null(thought)) /* newer name in vLLM */
        thought = json_object_get(delta, "reasoning");
    tell_text(c, PART_REASONING, thought);
    tell_text(c, PART_ANSWER, json_object_get(delta, "content"));
    tell_text(c, PART_ANSWER, json_object_get(delta, "refusal"));
    tell_text(c, PART_ANSWER, json_object_get(choice, "text"));
    take_calls(c, delta);
    if (finish)
        take_finish(c, finish);
}

/* An explicit error object, or an error text without choices: servers differ. */
static bool is_failure(const json_t *root, bool worded)
{
    const json_t *error = json_object_get(root, "error");

    return (error && !json_is_null(error) && !json_is_false(error)) ||
           (worded && !json_object_get(root, "choices"));
}

static bool is_blank(const char *text, size_t n)
{
    while (n && strchr(" \t", text[n - 1]) && text[n - 1])
        n--;
    return n == 0;
}

static bool is_done(const char *text, size_t n)
{
    return n >= 6 && memcmp(text, "[DONE]", 6) == 0 && is_blank(text + 6, n - 6);
}

/* Whether the text of an event is complete. */
static bool is_whole(const char *text, size_t n)
{
    json_t *root = is_done(text, n) ? NULL : mend_read(text, n);
    bool whole = root || is_done(text, n);

    json_decref(root);
    return whole;
}

static int take_data(void *ctx, const char *text, size_t n)
{
    struct coming *c = ctx;
    char own[300];
    bool worded;
    json_t *root;

    if (is_done(text, n)) {
        end_call(c);
        c->over = true;
        return 1;
    }
    if (is_blank(text, n))
        return 0;
    if (!(root = mend_read(text, n))) {
        error_set(&c->failure, ERR_IO, "a piece of its stream is no JSON");
        return 1;
    }
    worded = http_error_text(text, n, own, sizeof own);
    if (is_failure(root, worded)) {
        error_set(&c->failure, ERR_IO, "%s", worded ? own : "it says that it failed");
    } else {
        take_usage(c, json_object_get(root, "usage"));
        if (json_array_size(json_object_get(root, "choices")))
            take_choice(c, json_array_get(json_object_get(root, "choices"), 0));
    }
    json_decref(root);
    return c->unwanted || c->failure.code;
}

static int take_bytes(void *ctx, const char *bytes, size_t n)
{
    struct coming *c = ctx;
    int rc = sse_feed(&c->sse, bytes, n, take_data, c);

    if (rc < 0)
        error_set(&c->failure, ERR_IO, "an event of its stream is larger than %u MiB",
                  SSE_MOST >> 20);
    return rc;
}

static bool is_stopped(void *ctx)
{
    struct coming *c = ctx;

    c->enough = c->enough ||
                (c->over && c->over_ns && clock_seconds(clock_now() - c->over_ns) > AFTER_SECONDS);
    return c->enough || c->unwanted || (c->to->stop && c->to->stop(c->to->ctx));
}

/* ---- the whole answer ---- */

static bool worth_another(const struct coming *c, const struct http_call *call, int rc)
{
    if (c->started || call->retry_after > PATIENCE)
        return false;
    if (rc == ERR_IO)
        return call->status == 0 && !call->late && !call->untrusted;
    return rc == 0 && (call->status == 429 || (call->status >= 502 && call->status <= 504));
}

/* Reports a pause that is long enough to be noticed. */
static void tell_pause(struct coming *c, const struct http_call *call, int tries)
{
    struct answer_pause p = {call->status,
                             clock_now() + (uint64_t)call->retry_after * CLOCK_SECOND};
    struct event ev = {.kind = EVENT_NOTICE};
    char line[600];

    if (call->retry_after < TOLD_WAIT_SECONDS)
        return;
    snprintf(line, sizeof line, "%s is busy (HTTP %ld): asking again in %ld s (%d of %d)",
             c->server->http.base, call->status, call->retry_after, tries + 1, TRIES);
    ev.text = mem_string(line);
    tell(c, &ev);
    event_release(&ev);
    if (c->to->pause)
        c->to->pause(c->to->ctx, &p);
}

static int ask(struct coming *c, struct http_call *call, struct error *e)
{
    bool stopped;
    int rc;

    for (int tries = 1;; tries++) {
        rc = http_perform(&c->server->http, call, e);
        if (tries == TRIES || !worth_another(c, call, rc))
            return rc;
        tell_pause(c, call, tries);
        stopped = web_back_off(tries, call->retry_after, is_stopped, c);
        if (c->to->pause)
            c->to->pause(c->to->ctx, NULL);
        if (stopped)
            return error_set(e, ERR_CANCELLED, "interrupted");
    }
}

/* The result, with an error text that names the server; text received so far is kept in any case.
 */
static int judge(struct coming *c, const struct http_call *call, int rc, struct error *e)
{
    const char *base = c->server->http.base;

    if (c->unwanted || (rc == ERR_CANCELLED && !c->enough))
        return ERR_CANCELLED;
    if (c->failure.code)
        return error_set(e, c->failure.code, "%s: %s%s", base, c->failure.text,
                         c->pieces ? "; what came before is kept" : "");
    if (call->status >= 300)
        return http_refused(&c->server->http, call, e);
    if (rc < 0 && !c->over)
        return c->pieces ? error_set(e, rc,
                                     "%s: the stream broke after %d piece%s (%s); what came "
                                     "is kept",
                                     base, c->pieces, c->pieces == 1 ? "" : "s", e ? e->text : "")
                         : error_prefix(e, "%s", base);
    if (!c->over)
        return error_set(e, ERR_IO, "%s: the stream ended in the middle%s, after %d piece%s%s",
                         base, c->half ? " of an event" : "", c->pieces, c->pieces == 1 ? "" : "s",
                         c->pieces ? "; what came is kept" : "");
    return 0;
}

/* A whole answer has arrived: the last event of a stream may lack its empty line, and a server
 * without streaming answers with one object. */
static void take_end(struct coming *c, const struct http_call *call)
{
    char what[160];

    if (call->events) {
        c->half = !c->over && !c->failure.code && sse_end(&c->sse, is_whole, take_data, c) < 0;
        return;
    }
    if (call->text.len)
        take_data(c, call->text.data, call->text.len);
    if (c->failure.code && strcasecmp(call->type, "application/json"))
        error_set(&c->failure, ERR_IO, "what it answers is %s, no answer of a model",
                  http_body_words(call, what, sizeof what));
}

uint64_t answer_decode_ns(uint64_t first, uint64_t last)
{
    const uint64_t bundled = 10000000; /* pieces of one packet are read much faster than this */

    return last - first < bundled ? 0 : last - first;
}

static void measure(struct coming *c)
{
    uint64_t now = clock_now();

    if (!c->counted)
        c->done.completion_tokens = c->pieces;
    c->done.total_ns = now - c->start_ns;
    if (!c->first_ns)
        return;
    c->done.ttft_ns = c->done.prefill_ns = c->first_ns - c->start_ns;
    c->done.decode_ns = answer_decode_ns(c->first_ns, c->last_ns);
}

int answer_remote(const struct server *s, const struct request *r, const struct answer_listener *l,
                  struct turn_done_event *done, struct error *e)
{
    struct coming c = {.server = s, .to = l, .start_ns = clock_now()};
    struct http_call call = {
        .path = r->path, .body = r->body, .stop = is_stopped, .take = take_bytes, .ctx = &c};
    struct error why = {0};
    int rc;

    sse_init(&c.sse);
    rc = ask(&c, &call, &why);
    if (rc == 0 && call.status == 200)
        take_end(&c, &call);
    rc = judge(&c, &call, rc, &why);
    measure(&c);
    if (rc == ERR_CANCELLED)
        c.done.reason = STOP_CANCELLED;
    else if (rc < 0)
        c.done.reason = STOP_ERROR;
    if (rc < 0 && rc != ERR_CANCELLED && e)
        *e = why;
    *done = c.done;
    sse_release(&c.sse);
    strbuf_release(&call.text);
    return rc == ERR_CANCELLED ? 0 : rc;
}
