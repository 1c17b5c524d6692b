/* See conversation_json.h. Tool features missing in the model's template (tools.h) become text: a
 * tool's result becomes a user message, an assistant's call becomes part of its text. */
#include "app/serve/request/conversation_json.h"

#include "app/serve/request/request_fields.h"
#include "app/serve/request/tools.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"
#include "engine/text/chat_template.h"
#include "engine/text/hermes.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct refusal *r)
{
    return refuse(r, 503, "out_of_memory", NULL, "out of memory for the conversation");
}

static const struct {
    const char *word;
    enum role role;
} roles[] = {{"system", ROLE_SYSTEM},       {"developer", ROLE_SYSTEM}, {"user", ROLE_USER},
             {"assistant", ROLE_ASSISTANT}, {"tool", ROLE_TOOL},        {"function", ROLE_TOOL}};

static int find_role(const json_t *m, const char *param, struct refusal *r)
{
    const json_t *v = json_object_get(m, "role");

    for (size_t i = 0; json_is_string(v) && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(json_string_value(v), roles[i].word) == 0)
            return (int)roles[i].role;
    return refuse(r, 400, v ? "invalid_value" : "missing_required_parameter", param,
                  "'%s.role' must be system, developer, user, assistant or tool", param);
}

/* State of reading a message list. */
struct reader {
    struct dialogue *d;
    const char *list; /* the field's name */
    const struct chat_tools *knows;
    /* the calls of the newest assistant message with calls, for the template; NULL: none */
    const json_t *calls;
    size_t results; /* since then */
    size_t more;    /* calls beyond one per message, in total */
    /* the user message of tool results that is being collected; NULL: none */
    struct message *wrapped;
    struct strbuf said; /* its text so far */
};

/* Appends the calls of an assistant's message to its text. */
static int put_calls(const json_t *calls, char **text, const char *param, struct refusal *r)
{
    struct strbuf b = {0};

    strbuf_puts(&b, *text);
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (tools_put_call(&b, json_array_get(calls, i), param, r) < 0) {
            strbuf_release(&b);
            return -1;
        }
    mem_free(*text);
    *text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    return *text ? 0 : no_memory(r);
}

static int add_calls(struct reader *d, const json_t *m, struct message *out, const char *param,
                     struct refusal *r)
{
    const json_t *calls = field_get(m, "tool_calls");
    json_t *list;

    if (calls && !json_is_array(calls))
        return refuse(r, 400, "invalid_type", param, "'%s.tool_calls' must be a list", param);
    if (!json_array_size(calls))
        return 0;
    if (!d->knows->calls)
        return put_calls(calls, &out->text, param, r);
    list = json_array();
    out->members = json_pack("{s:o}", "tool_calls", list);
    if (!out->members)
        return no_memory(r);
    if (!out->text[0] && !d->knows->empty_content)
        json_object_set_new(out->members, "content", json_null());
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = tools_call_value(d->knows, json_array_get(calls, i), param, r);

        if (!call)
            return -1;
        json_array_append_new(list, call);
    }
    d->calls = list;
    d->results = 0;
    d->more += json_array_size(list) - 1;
    return 0;
}

#define CALLS_LOOKED_AT 256 /* calls of one message that are searched for a result's id */

/* The name of the tool of this call id; NULL: unknown. */
static const json_t *name_called(const struct reader *d, const char *id)
{
    const json_t *call = json_array_get(d->calls, d->results);
    size_t n = json_array_size(d->calls);

    for (size_t i = 0; i <= n && i < CALLS_LOOKED_AT; i++) {
        const char *its = json_string_value(json_object_get(call, "id"));

        if (call && ((!id && i == 0) || (id && its && strcmp(id, its) == 0)))
            return json_object_get(json_object_get(call, "function"), "name");
        call = json_array_get(d->calls, i);
    }
    return NULL;
}

/* Results of one turn are one message: many templates require users and assistants to alternate. */
static void wrap_result(struct reader *d, struct message *out)
{
    hermes_put_result(&d->said, out->text);
    if (d->wrapped) {
        mem_free(out->text);
        d->d->n_messages--;
        return;
    }
    out->role = ROLE_USER;
    d->wrapped = out;
}

/* Ends the message of tool results. */
static int end_wrapped(struct reader *d, struct refusal *r)
{
    struct message *m = d->wrapped;

    d->wrapped = NULL;
    if (!m)
        return 0;
    mem_free(m->text);
    m->text = strbuf_take(&d->said, NULL);
    strbuf_release(&d->said);
    return m->text ? 0 : no_memory(r);
}

/* A tool's result. */
static int add_result(struct reader *d, const json_t *m, struct message *out, struct refusal *r)
{
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    const json_t *name = field_get(m, "name");
    char own[TOOLS_SHORT_ID];

    if (!d->knows->results)
        return wrap_result(d, out), 0;
    id = id ? tools_id(d->knows, id, own) : NULL;
    if (!json_is_string(name))
        name = name_called(d, id);
    d->results++;
    out->members = json_pack("{s:s*, s:O*}", "tool_call_id", id, "name", name);
    return out->members ? 0 : no_memory(r);
}

static int read_message(struct reader *d, const json_t *m, size_t i, struct refusal *r)
{
    struct message *out = &d->d->messages[d->d->n_messages];
    const json_t *thought = field_get(m, "reasoning_content");
    char param[32], content[48];
    int role;

    snprintf(param, sizeof param, "%s[%zu]", d->list, i);
    snprintf(content, sizeof content, "%s.content", param);
    if (!json_is_object(m))
        return refuse(r, 400, "invalid_type", param, "'%s' must be an object", param);
    if ((role = find_role(m, param, r)) < 0)
        return -1;
    *out = (struct message){.role = (enum role)role};
    out->text = request_content(json_object_get(m, "content"), role == ROLE_ASSISTANT, content, r);
    if (!out->text)
        return -1;
    d->d->n_messages++;
    if (role != ROLE_TOOL && end_wrapped(d, r) < 0)
        return -1;
    if (thought && !json_is_string(thought))
        return refuse(r, 400, "invalid_type", param, "'%s.reasoning_content' must be a string",
                      param);
    if (thought && role == ROLE_ASSISTANT &&
        !(out->reasoning = mem_string(json_string_value(thought))))
        return no_memory(r);
    return role == ROLE_TOOL        ? add_result(d, m, out, r)
           : role == ROLE_ASSISTANT ? add_calls(d, m, out, param, r)
                                    : 0;
}

/* Adds the tools to the system message, which is created if missing; before the first user message
 * if the template rejects system messages. */
static int tell_tools(struct dialogue *d, const char *tools, bool no_system, struct refusal *r)
{
    struct strbuf b = {0};
    bool has = d->messages[0].role == ROLE_SYSTEM;

    if (no_system && d->messages[0].role == ROLE_USER) {
        strbuf_printf(&b, "%s\n\n%s", tools, d->messages[0].text);
        mem_free(d->messages[0].text);
        d->messages[0].text = strbuf_take(&b, NULL);
        strbuf_release(&b);
        return d->messages[0].text ? 0 : no_memory(r);
    }
    if (has)
        strbuf_printf(&b, "%s\n\n", d->messages[0].text);
    strbuf_puts(&b, tools);
    if (!has) {
        memmove(d->messages + 1, d->messages, d->n_messages * sizeof *d->messages);
        d->messages[0] = (struct message){.role = ROLE_SYSTEM};
        d->n_messages++;
    }
    mem_free(d->messages[0].text);
    d->messages[0].text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    return d->messages[0].text ? 0 : no_memory(r);
}

static int add_system(struct dialogue *d, const char *text, struct refusal *r)
{
    struct message *m = &d->messages[d->n_messages];

    if (!text || !*text)
        return 0;
    *m = (struct message){.role = ROLE_SYSTEM, .text = mem_string(text)};
    if (!m->text)
        return no_memory(r);
    d->n_messages++;
    return 0;
}

/* The index of the result of call k, among n messages; n: none. */
static size_t result_of(const struct message *m, size_t n, const json_t *call, size_t k)
{
    const json_t *id = json_object_get(call, "id");

    for (size_t i = 0; id && i < n && i < CALLS_LOOKED_AT; i++)
        if (m[i].members && m[i].text &&
            json_equal(json_object_get(m[i].members, "tool_call_id"), id))
            return i;
    return !id && k < n && m[k].text ? k : n;
}

/* One message with a single call, made from the assistant's; the first one has its text. */
static int split_call(struct message *out, struct message *from, const json_t *call, bool first)
{
    json_t *content = json_object_get(from->members, "content");

    *out = (struct message){.role = ROLE_ASSISTANT};
    out->members = json_pack("{s:O*, s:[O]}", "content", content, "tool_calls", call);
    if (first) {
        out->text = from->text;
        out->reasoning = from->reasoning;
        from->text = from->reasoning = NULL;
    } else {
        out->text = mem_string("");
    }
    return out->text && out->members ? 0 : -1;
}

/* Splits parallel calls into consecutive ones, each followed by its result. */
static int split_calls(struct dialogue *d, size_t more, struct refusal *r)
{
    size_t n = d->n_messages, results, at;
    struct message *old = d->messages, *m = mem_alloc(n + more + 1, sizeof *m);
    int rc = 0;

    if (!m)
        return no_memory(r);
    d->messages = m;
    d->n_messages = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *calls = json_object_get(old[i].members, "tool_calls"), *call;
        size_t k;

        if (!old[i].text) /* it was moved after its call */
            continue;
        if (json_array_size(calls) < 2) {
            m[d->n_messages++] = old[i];
            old[i] = (struct message){0};
            continue;
        }
        for (results = 0; i + 1 + results < n && old[i + 1 + results].role == ROLE_TOOL;)
            results++;
        json_array_foreach(calls, k, call)
        {
            rc |= split_call(&m[d->n_messages++], &old[i], call, k == 0);
            at = i + 1 + result_of(&old[i + 1], results, call, k);
            if (at < i + 1 + results) {
                m[d->n_messages++] = old[at];
                old[at] = (struct message){0};
            }
        }
    }
    dialogue_release(&(struct dialogue){.messages = old, .n_messages = n});
    return rc < 0 ? no_memory(r) : 0;
}

static int read_list(struct job *j, const struct conversation_source *from,
                     const struct telling *tools, struct dialogue *d, struct refusal *r)
{
    struct reader reader = {.d = d, .list = from->name, .knows = &tools->knows};
    size_t n = json_array_size(from->list);
    const struct message *last;
    int rc = 0;

    if (!(d->messages = mem_alloc(n + 2, sizeof *d->messages)))
        return no_memory(r);
    if (add_system(d, from->system, r) < 0)
        return -1;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_message(&reader, json_array_get(from->list, i), i, r);
    if (rc == 0)
        rc = end_wrapped(&reader, r);
    strbuf_release(&reader.said);
    if (rc < 0 || tools_given(j, tools, &d->given, r) < 0)
        return -1;
    if (tools->knows.single && reader.more && split_calls(d, reader.more, r) < 0)
        return -1;
    last = &d->messages[d->n_messages - 1];
    d->continue_last = last->role == ROLE_ASSISTANT && !last->members;
    return tools->text ? tell_tools(d, tools->text, tools->knows.no_system, r) : 0;
}

static int read_conversation(struct job *j, const struct conversation_source *from,
                             struct dialogue *d, struct refusal *r)
{
    struct telling tools;
    int rc;

    *d = (struct dialogue){.whole = true};
    if (!json_is_array(from->list) || !json_array_size(from->list))
        return refuse(r, 400, from->list ? "invalid_type" : "missing_required_parameter",
                      from->name, "'%s' must be a list of at least one message", from->name);
    rc = tools_read(j, &tools, r);
    if (rc == 0)
        rc = read_list(j, from, &tools, d, r);
    mem_free(tools.text);
    return rc;
}

static int make_prompt(struct job *j, const struct dialogue *d, bool counted, struct prompt *out,
                       struct refusal *r)
{
    const struct engine_info *all = server_info(j->server);
    /* its devices change while it is used: they are the engine's thread's */
    struct engine_info info = {.model = all->model,
                               .tokenizer = all->tokenizer,
                               .chat = all->chat,
                               .chat_error = all->chat_error,
                               .context = all->context};
    struct stop stop = exchange_stop(j->x);
    struct error e = {0};

    if (d->continue_last && j->grammar && !j->wish.call &&
        !(j->opening = mem_string(d->messages[d->n_messages - 1].text)))
        return no_memory(r);
    if (counted)
        info.context = INT_MAX / 2;
    if (prompt_make(&info, NULL, d, -1, &stop, out, &e) < 0)
        return refuse_error(r, &e);
    if (tools_prompt(j, out, r) == 0)
        return 0;
    mem_free(out->ids);
    out->ids = NULL;
    return -1;
}

int conversation_prompt(struct job *j, const struct conversation_source *from, struct prompt *out,
                        struct refusal *r)
{
    struct dialogue d = {0};
    int rc = read_conversation(j, from, &d, r);

    if (rc == 0)
        rc = make_prompt(j, &d, from->counted, out, r);
    dialogue_release(&d);
    return rc;
}

int conversation_text(struct job *j, const struct conversation_source *from, struct strbuf *out,
                      struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    struct stop stop = exchange_stop(j->x);
    struct dialogue d = {0};
    struct error e = {0};
    char *text = NULL;
    size_t n;
    int rc = read_conversation(j, from, &d, r);

    if (rc == 0 && !info->chat)
        rc = refuse_error(r, info->chat_error.code
                                 ? &info->chat_error
                                 : (error_set(&e, ERR_MODEL, "the model has no tokenizer"), &e));
    if (rc == 0) {
        n = d.n_messages - d.continue_last;
        if (chat_template_render(info->chat, d.messages, n, d.given, true, &stop, &text, &e) < 0)
            rc = refuse_error(r, &e);
    }
    if (rc == 0) {
        strbuf_puts(out, text);
        strbuf_puts(out, d.continue_last ? d.messages[n].text : tools_opening(j));
    }
    mem_free(text);
    dialogue_release(&d);
    return rc < 0 ? -1 : 0;
}
