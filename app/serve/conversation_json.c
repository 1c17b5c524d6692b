/* See conversation_json.h. The engine's conversations have three roles: what a tool said is a
 * user's message, what an assistant called is part of its text, both in the form of Hermes, which
 * most models that know tools were taught. */
#include "app/serve/conversation_json.h"

#include "app/serve/ask.h"
#include "app/serve/tools.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"

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
    bool tool;
} roles[] = {{"system", ROLE_SYSTEM, false}, {"developer", ROLE_SYSTEM, false},
             {"user", ROLE_USER, false},     {"assistant", ROLE_ASSISTANT, false},
             {"tool", ROLE_USER, true},      {"function", ROLE_USER, true}};

static int find_role(const json_t *m, const char *param, struct refusal *r)
{
    const json_t *v = json_object_get(m, "role");

    for (size_t i = 0; json_is_string(v) && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(json_string_value(v), roles[i].word) == 0)
            return (int)i;
    return refuse(r, 400, v ? "invalid_value" : "missing_required_parameter", param,
                  "'%s.role' must be system, developer, user, assistant or tool", param);
}

/* The calls of an assistant's message behind its text. */
static int add_calls(const json_t *m, char **text, const char *param, struct refusal *r)
{
    const json_t *calls = field_get(m, "tool_calls");
    struct strbuf b = {0};

    if (!calls)
        return 0;
    if (!json_is_array(calls))
        return refuse(r, 400, "invalid_type", param, "'%s.tool_calls' must be a list", param);
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

static int wrap_result(char **text, struct refusal *r)
{
    struct strbuf b = {0};

    strbuf_printf(&b, "<tool_response>\n%s\n</tool_response>", *text);
    mem_free(*text);
    *text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    return *text ? 0 : no_memory(r);
}

static int read_message(struct dialogue *d, const char *list, const json_t *m, size_t i,
                        struct refusal *r)
{
    struct message *out = &d->messages[d->n_messages];
    const json_t *thought = field_get(m, "reasoning_content");
    char param[32], content[48];
    int role;

    snprintf(param, sizeof param, "%s[%zu]", list, i);
    snprintf(content, sizeof content, "%s.content", param);
    if (!json_is_object(m))
        return refuse(r, 400, "invalid_type", param, "'%s' must be an object", param);
    if ((role = find_role(m, param, r)) < 0)
        return -1;
    *out = (struct message){.role = roles[role].role};
    out->text = ask_content(json_object_get(m, "content"), roles[role].role == ROLE_ASSISTANT,
                            content, r);
    if (!out->text)
        return -1;
    d->n_messages++;
    if (thought && !json_is_string(thought))
        return refuse(r, 400, "invalid_type", param, "'%s.reasoning_content' must be a string",
                      param);
    if (thought && out->role == ROLE_ASSISTANT &&
        !(out->reasoning = mem_string(json_string_value(thought))))
        return no_memory(r);
    if (roles[role].tool)
        return wrap_result(&out->text, r);
    return out->role == ROLE_ASSISTANT ? add_calls(m, &out->text, param, r) : 0;
}

/* The tools into the system message, which is made where there is none. */
static int tell_tools(struct dialogue *d, char *tools, struct refusal *r)
{
    struct strbuf b = {0};
    bool has = d->n_messages && d->messages[0].role == ROLE_SYSTEM;

    if (has)
        strbuf_printf(&b, "%s\n\n", d->messages[0].text);
    strbuf_puts(&b, tools);
    mem_free(tools);
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

static int read_conversation(struct job *j, const struct conversation_source *from,
                             struct dialogue *d, struct refusal *r)
{
    size_t n = json_array_size(from->list);
    char *tools = NULL;

    *d = (struct dialogue){.whole = true};
    if (!json_is_array(from->list) || !n)
        return refuse(r, 400, from->list ? "invalid_type" : "missing_required_parameter",
                      from->name, "'%s' must be a list of at least one message", from->name);
    if (!(d->messages = mem_alloc(n + 2, sizeof *d->messages)))
        return no_memory(r);
    if (add_system(d, from->system, r) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (read_message(d, from->name, json_array_get(from->list, i), i, r) < 0)
            return -1;
    if (tools_read(j, &tools, r) < 0)
        return -1;
    d->continue_last = d->messages[d->n_messages - 1].role == ROLE_ASSISTANT;
    return tools ? tell_tools(d, tools, r) : 0;
}

static int make_prompt(struct job *j, const struct dialogue *d, bool counted, struct prompt *out,
                       struct refusal *r)
{
    struct engine_info info = *server_info(j->server);
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
