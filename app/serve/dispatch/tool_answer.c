/* See tool_answer.h. */
#include "app/serve/dispatch/tool_answer.h"

#include "app/serve/request/tools.h"
#include "engine/base/mem.h"
#include "engine/text/tool_calls.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* The tool of this name in a member of the request; NULL: none. */
static const json_t *tool_in(const struct job *j, const char *member, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(json_object_get(j->body, member), i, tool)
    {
        const json_t *f = json_object_get(tool, "function");
        const char *its = json_string_value(json_object_get(f, "name"));

        if (name && its && strcmp(its, name) == 0)
            return f;
    }
    return NULL;
}

static const json_t *tool_named(const struct job *j, const char *name)
{
    return tool_in(j, "tools", name);
}

/* The request has it, and its tool_choice does not allow it. */
static bool is_forbidden(const struct job *j, const char *name)
{
    return tool_in(j, TOOLS_FORBIDDEN, name) && !tool_named(j, name);
}

/* ---- calls without a marker ---- */

/* The unparsed rest of an answer's beginning. */
struct rest {
    const char *at, *end;
};

static bool skip(struct rest *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at))
        r->at++;
    return r->at < r->end;
}

/* Whether the rest begins with the word, or is itself a beginning of the word. */
static bool begins(const struct rest *r, const char *word, size_t n)
{
    size_t have = (size_t)(r->end - r->at);

    return memcmp(r->at, word, have < n ? have : n) == 0;
}

/* Whether the rest may begin with a tool's name followed by `close`. */
static bool may_name(const struct job *j, const struct rest *r, char close)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(json_object_get(j->body, "tools"), i, tool)
    {
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        size_t n = json_string_length(name), have = (size_t)(r->end - r->at);

        if (json_is_string(name) && begins(r, json_string_value(name), n) &&
            (have <= n || r->at[n] == close))
            return true;
    }
    return false;
}

/* Whether the rest, after a {, may begin a call: {"name": "TOOL", {"type": "function" and the like.
 * True also if the text is too short to tell. */
static bool may_object(const struct job *j, struct rest r)
{
    static const struct {
        const char *key, *value; /* value: required text; NULL: any, "": a tool's name */
    } keys[] = {{"\"name\"", ""},
                {"\"tool_name\"", ""},
                {"\"type\"", "\"function\""},
                {"\"arguments\"", NULL},
                {"\"parameters\"", NULL}};

    if (!skip(&r))
        return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = keys[i].value;
        size_t n = strlen(keys[i].key);
        struct rest of = r;

        if (!begins(&of, keys[i].key, n))
            continue;
        if ((size_t)(of.end - of.at) <= n || !value)
            return true;
        of.at += n;
        if (!skip(&of))
            return true;
        if (*of.at++ != ':')
            return false;
        if (!skip(&of))
            return true;
        if (*value)
            return begins(&of, value, strlen(value));
        return *of.at++ == '"' && may_name(j, &of, '"');
    }
    return false;
}

bool tools_may_call(const struct job *j, const char *text, size_t n)
{
    struct rest r = {text, text + n};

    if (!skip(&r))
        return true;
    switch (*r.at) {
    case '{': r.at++; return may_object(j, r);
    case '[':
        r.at++;
        if (!skip(&r))
            return true;
        if (*r.at != '{')
            return may_name(j, &r, '(');
        r.at++;
        return may_object(j, r);
    case '<':
        if (!begins(&r, "<function=", 10))
            return false;
        r.at += r.end - r.at < 10 ? r.end - r.at : 10;
        return may_name(j, &r, '>');
    default: return false;
    }
}

/* ---- parsing calls ---- */

/* "call_" and random digits. */
static json_t *make_id(void)
{
    static unsigned long long made; /* the dispatcher's thread alone comes here */
    unsigned char bits[12] = {0};
    char id[32] = "call_";

    if (getrandom(bits, sizeof bits, GRND_NONBLOCK) < 0) {
        made++;
        memcpy(bits, &made, sizeof made);
    }
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(id + 5 + 2 * i, 3, "%02x", bits[i]);
    return json_string(id);
}

static json_t *make_call(const char *name, const char *arguments)
{
    return json_pack("{s:o, s:s, s:{s:s, s:s}}", "id", make_id(), "type", "function", "function",
                     "name", name, "arguments", arguments);
}

struct collector {
    const struct job *job;
    json_t *calls;
    bool strangers; /* a call names a tool that is not in the request */
};

static int add_call(void *ctx, const char *text, const struct tool_call *call)
{
    struct collector *c = ctx;
    json_t *name = tool_call_name(text, call);
    const json_t *tool = tool_named(c->job, json_string_value(name));
    char *arguments;
    int rc;

    if (is_forbidden(c->job, json_string_value(name))) {
        json_decref(name);
        return 0;
    }
    arguments = tool_call_arguments_text(text, call, json_object_get(tool, "parameters"));
    rc = json_is_string(name) && arguments
             ? json_array_append_new(c->calls, make_call(json_string_value(name), arguments))
             : -1;

    c->strangers = c->strangers || !tool;
    mem_free(arguments);
    json_decref(name);
    return rc;
}

static bool only_one(const struct job *j)
{
    return json_is_false(json_object_get(j->body, "parallel_tool_calls"));
}

/* known: ignore calls of tools that the request does not name. */
static bool read_calls(struct task *t, const struct strbuf *said, bool known)
{
    struct collector c = {t->job, json_array(), false};

    if (tool_calls_each(said->data, 0, said->len, add_call, &c) <= 0 || (known && c.strangers) ||
        !json_array_size(c.calls)) {
        json_decref(c.calls);
        return false;
    }
    if (only_one(t->job))
        while (json_array_size(c.calls) > 1)
            json_array_remove(c.calls, json_array_size(c.calls) - 1);
    t->tool_calls = c.calls;
    return true;
}

/* ---- streams ---- */

static json_t *newest(const struct task *t)
{
    return json_array_get(t->sent_calls, json_array_size(t->sent_calls) - 1);
}

static void set_arguments(json_t *call, const struct strbuf *arguments)
{
    json_object_set_new(json_object_get(call, "function"), "arguments",
                        json_stringn(strbuf_text(arguments), arguments->len));
}

/* Adds a call to those sent. NULL: no memory. */
static json_t *send_begin(struct task *t, json_t *call)
{
    if (!t->sent_calls)
        t->sent_calls = json_array();
    if (json_array_append_new(t->sent_calls, call) < 0)
        return NULL;
    strbuf_clear(&t->arguments);
    t->job->dialect->call_begin(t->job, t, call, json_array_size(t->sent_calls) - 1);
    return call;
}

static void send_piece(void *ctx, const char *json, size_t n)
{
    struct task *t = ctx;

    strbuf_put(&t->arguments, json, n);
    t->job->dialect->call_piece(t->job, t, json_array_size(t->sent_calls) - 1, json, n);
}

static void send_end(void *ctx)
{
    struct task *t = ctx;

    set_arguments(newest(t), &t->arguments);
    t->job->dialect->call_end(t->job, t, newest(t), json_array_size(t->sent_calls) - 1);
}

/* Without a marker only calls of the request's tools are calls. */
static bool begin(void *ctx, const char *name, const json_t **parameters)
{
    struct task *t = ctx;
    const json_t *tool = tool_named(t->job, name);

    *parameters = json_object_get(tool, "parameters");
    return (tool || t->call.len) && !is_forbidden(t->job, name) &&
           !(t->sent_calls && only_one(t->job)) && send_begin(t, make_call(name, ""));
}

static const struct strbuf *written(const struct task *t)
{
    return t->call.len ? &t->call : &t->held;
}

void tools_stream(struct task *t)
{
    const struct call_stream_sink sink = {t, begin, send_piece, send_end};

    if (t->job->dialect->call_begin)
        call_stream_read(&t->calls, written(t)->data, written(t)->len, &sink);
}

/* Sends what is not sent yet of call i. */
static void send_rest(struct task *t, json_t *call, size_t i)
{
    json_t *function = json_object_get(call, "function"), *sent;
    const json_t *arguments = json_object_get(function, "arguments");
    const char *all = json_string_value(arguments);
    size_t n = json_string_length(arguments);

    if (i >= json_array_size(t->sent_calls) &&
        !send_begin(t, make_call(json_string_value(json_object_get(function, "name")), "")))
        return;
    sent = json_array_get(t->sent_calls, i);
    json_object_set(call, "id", json_object_get(sent, "id"));
    if (sent != newest(t) ||
        json_string_length(json_object_get(json_object_get(sent, "function"), "arguments")))
        return; /* it was complete */
    if (n > t->arguments.len && memcmp(all, strbuf_text(&t->arguments), t->arguments.len) == 0)
        send_piece(t, all + t->arguments.len, n - t->arguments.len);
    send_end(t);
}

/* What was sent as calls turned out to be none, or was cut short. */
static void keep_sent(struct task *t)
{
    t->tool_calls = json_incref(t->sent_calls);
    t->call_cut = t->calls.open;
    if (t->calls.open)
        send_end(t);
}

void tools_end(struct task *t, bool streams)
{
    const struct strbuf *said = written(t);
    bool good = read_calls(t, said, said == &t->held);
    json_t *call;
    size_t i;

    if (good && streams && t->job->dialect->call_begin)
        json_array_foreach(t->tool_calls, i, call) send_rest(t, call, i);
    else if (!good && t->sent_calls)
        keep_sent(t);
    else if (!good)
        strbuf_put(&t->text, said->data, said->len);
}
