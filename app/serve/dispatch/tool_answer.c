/* See tool_answer.h. */
#include "app/serve/dispatch/tool_answer.h"

#include "engine/base/mem.h"
#include "engine/text/tool_calls.h"

#include <string.h>
#include <sys/random.h>

/* The request's tool of this name; NULL: none. */
static const json_t *tool_named(const struct job *j, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(json_object_get(j->body, "tools"), i, tool)
    {
        const json_t *f = json_object_get(tool, "function");
        const char *its = json_string_value(json_object_get(f, "name"));

        if (name && its && strcmp(its, name) == 0)
            return f;
    }
    return NULL;
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

static json_t *make_call(const char *name, const char *arguments)
{
    unsigned char bits[12] = {0};
    char id[32] = "call_";

    if (getrandom(bits, sizeof bits, GRND_NONBLOCK) < 0)
        memcpy(bits, &arguments, sizeof arguments);
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(id + 5 + 2 * i, 3, "%02x", bits[i]);
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name",
                     name, "arguments", arguments);
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
    char *arguments = tool_call_arguments_text(text, call, json_object_get(tool, "parameters"));
    int rc = json_is_string(name) && arguments
                 ? json_array_append_new(c->calls, make_call(json_string_value(name), arguments))
                 : -1;

    c->strangers = c->strangers || !tool;
    mem_free(arguments);
    json_decref(name);
    return rc;
}

/* known: ignore calls of tools that the request does not name. */
static bool read_calls(struct task *t, const struct strbuf *said, bool known)
{
    struct collector c = {t->job, json_array(), false};

    if (tool_calls_each(said->data, 0, said->len, add_call, &c) <= 0 || (known && c.strangers)) {
        json_decref(c.calls);
        return false;
    }
    if (json_is_false(json_object_get(t->job->body, "parallel_tool_calls")))
        while (json_array_size(c.calls) > 1)
            json_array_remove(c.calls, json_array_size(c.calls) - 1);
    t->tool_calls = c.calls;
    return true;
}

void tools_end(struct task *t)
{
    struct strbuf *said = t->call.len ? &t->call : &t->held;

    if (!read_calls(t, said, said == &t->held))
        strbuf_put(&t->text, said->data, said->len);
}
