/* See responses_input.h. */
#include "app/serve/api/responses_input.h"

#include "engine/base/strbuf.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* An assistant's turn is one message of the chat: reasoning and text, then its calls. The newest
 * message of the list if it is an assistant's, else a new one. Borrowed; NULL: no memory. */
static json_t *assistant(json_t *list)
{
    size_t n = json_array_size(list);
    json_t *last = json_array_get(list, n - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    if (n && role && strcmp(role, "assistant") == 0)
        return last;
    last = json_pack("{s:s, s:n}", "role", "assistant", "content");
    return json_array_append_new(list, last) == 0 ? last : NULL;
}

/* The name by which the model knows a function of a namespace. A new reference. */
static json_t *joined_name(const json_t *space, const json_t *name)
{
    return json_sprintf("%s__%s", json_string_value(space), json_string_value(name));
}

/* arguments: taken. */
static void add_call(json_t *list, const json_t *item, json_t *arguments)
{
    json_t *m = assistant(list), *calls = json_object_get(m, "tool_calls"),
           *name = json_object_get(item, "name"), *space = json_object_get(item, "namespace");

    if (!calls) {
        json_object_set_new(m, "tool_calls", json_array());
        calls = json_object_get(m, "tool_calls");
    }
    name = json_is_string(name) && json_is_string(space) ? joined_name(space, name)
                                                         : json_incref(name);
    json_array_append_new(calls, json_pack("{s:O*, s:{s:o*, s:o*}}", "id",
                                           json_object_get(item, "call_id"), "function", "name",
                                           name, "arguments", arguments));
}

/* In this server's format; encrypted reasoning of other servers is empty. */
static void add_thought(json_t *list, const json_t *item)
{
    const json_t *part;
    struct strbuf b = {0};
    size_t i;

    json_array_foreach(json_object_get(item, "content"), i, part)
    {
        const char *text = json_string_value(json_object_get(part, "text"));

        strbuf_puts(&b, text ? text : "");
    }
    if (b.len) {
        json_t *m = json_pack("{s:s, s:n, s:s}", "role", "assistant", "content",
                              "reasoning_content", b.data);

        json_array_append_new(list, m);
    }
    strbuf_release(&b);
}

/* A message of the chat; an assistant's is merged with its preceding reasoning. */
static void add_message(json_t *list, const json_t *item)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1),
           *content = json_object_get(item, "content");
    const char *role = json_string_value(json_object_get(item, "role"));

    if (json_array_size(list) && role && strcmp(role, "assistant") == 0 && content &&
        json_object_get(last, "reasoning_content") && !json_object_get(last, "tool_calls") &&
        json_is_null(json_object_get(last, "content")))
        json_object_set(last, "content", content);
    else
        json_array_append_new(list, json_copy((json_t *)(uintptr_t)item));
}

/* Converts an item of "input" to messages of the chat. */
static void add_item(json_t *list, const json_t *item, size_t i, struct refusal *r)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    char param[32];

    if (!type || strcmp(type, "message") == 0) {
        add_message(list, item);
    } else if (strcmp(type, "function_call") == 0) {
        add_call(list, item, json_incref(json_object_get(item, "arguments")));
    } else if (strcmp(type, "custom_tool_call") == 0) { /* its input is a text */
        add_call(list, item, json_pack("{s:O*}", "input", json_object_get(item, "input")));
    } else if (strcmp(type, "function_call_output") == 0 ||
               strcmp(type, "custom_tool_call_output") == 0) {
        json_array_append_new(list, json_pack("{s:s, s:O*, s:O*}", "role", "tool", "tool_call_id",
                                              json_object_get(item, "call_id"), "content",
                                              json_object_get(item, "output")));
    } else if (strcmp(type, "reasoning") == 0) {
        add_thought(list, item);
    } else if (strcmp(type, "web_search_call") != 0) { /* of which the answer tells */
        snprintf(param, sizeof param, "input[%zu]", i);
        refuse(r, 400, "unsupported_value", param,
               "'%s' is of type '%.40s', which is not supported", param, type);
    }
}

json_t *responses_messages(const json_t *items, struct refusal *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(items) && !r->status; i++)
        add_item(list, json_array_get(items, i), i, r);
    if (!r->status)
        return list;
    json_decref(list);
    return NULL;
}

/* ---- tools ---- */

/* What OpenAI's servers run, or what is called in a way of its own. */
static bool is_foreign(const char *type)
{
    static const char *const beginnings[] = {"web_search",  "file_search", "code_interpreter",
                                             "computer",    "mcp",         "image_generation",
                                             "local_shell", "shell",       "custom",
                                             "apply_patch", "tool_search"};

    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(type, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

static bool is_of(const json_t *tool, const char *type)
{
    const char *its = json_string_value(json_object_get(tool, "type"));

    return its && strcmp(its, type) == 0;
}

/* space: the namespace's name, or NULL. */
static void add_function(json_t *nested, json_t *tool, const json_t *space)
{
    json_t *name = json_object_get(tool, "name");

    if (!json_object_get(tool, "strict"))
        json_object_set_new(tool, "strict", json_true()); /* calls match the schema */
    if (space && json_is_string(name)) {
        tool = json_copy(tool);
        json_object_set_new(tool, "name", joined_name(space, name));
    } else {
        json_incref(tool);
    }
    json_array_append_new(nested, json_pack("{s:s, s:o}", "type", "function", "function", tool));
}

/* {"type": "namespace", "name": ..., "tools": [function ...]} */
static int add_namespace(json_t *nested, const json_t *space, const char *param, struct refusal *r)
{
    const json_t *name = json_object_get(space, "name"), *list = json_object_get(space, "tools");
    json_t *tool;
    size_t i;

    if (!json_is_string(name) || !json_is_array(list))
        return refuse(r, 400, "invalid_type", param,
                      "'%s' is a namespace without a 'name' or a list of 'tools'", param);
    json_array_foreach(list, i, tool) if (is_of(tool, "function")) add_function(nested, tool, name);
    return 0;
}

static int add_tool(json_t *nested, json_t *tool, size_t i, struct refusal *r)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    char param[32];

    snprintf(param, sizeof param, "tools[%zu]", i);
    if (is_of(tool, "namespace"))
        return add_namespace(nested, tool, param, r);
    if (is_of(tool, "function"))
        add_function(nested, tool, NULL);
    else if (!type || !is_foreign(type))
        return refuse(r, 400, "unsupported_value", param,
                      "'%s' must be of type function or namespace", param);
    return 0;
}

/* Functions are flat here, in the chat an object. The request's own form is kept for the answer.
 * Tools of other kinds are not shown to the model, as long as there are functions: programs list
 * them whatever the server is. */
int responses_tools(struct job *j, struct refusal *r)
{
    json_t *list = json_object_get(j->body, "tools"), *nested;
    size_t n = json_array_size(list);

    if (!json_is_array(list))
        return 0;
    nested = json_array();
    for (size_t i = 0; i < n && !r->status; i++)
        add_tool(nested, json_array_get(list, i), i, r);
    if (n && !r->status && !json_array_size(nested))
        refuse(r, 400, "unsupported_value", "tools",
               "none of 'tools' is a function: there are no others here");
    json_object_set(j->body, "told_tools", list);
    json_object_set_new(j->body, "tools", nested);
    return r->status ? -1 : 0;
}

const json_t *responses_namespace(const struct job *j, const char **name)
{
    const json_t *space, *tool;
    size_t i, k;

    json_array_foreach(json_object_get(j->body, "told_tools"), i, space)
    {
        const json_t *its = json_object_get(space, "name");
        size_t n = json_string_length(its);

        if (!is_of(space, "namespace") || strncmp(*name, json_string_value(its), n) != 0 ||
            strncmp(*name + n, "__", 2) != 0)
            continue;
        json_array_foreach(json_object_get(space, "tools"), k, tool)
        {
            const char *own = json_string_value(json_object_get(tool, "name"));

            if (own && strcmp(*name + n + 2, own) == 0) {
                *name = own;
                return its;
            }
        }
    }
    return NULL;
}
