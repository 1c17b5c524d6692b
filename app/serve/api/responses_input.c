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

static void add_call(json_t *list, const json_t *item)
{
    json_t *m = assistant(list), *calls = json_object_get(m, "tool_calls");

    if (!calls) {
        json_object_set_new(m, "tool_calls", json_array());
        calls = json_object_get(m, "tool_calls");
    }
    json_array_append_new(calls, json_pack("{s:O*, s:{s:O*, s:O*}}", "id",
                                           json_object_get(item, "call_id"), "function", "name",
                                           json_object_get(item, "name"), "arguments",
                                           json_object_get(item, "arguments")));
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
        add_call(list, item);
    } else if (strcmp(type, "function_call_output") == 0) {
        json_array_append_new(list, json_pack("{s:s, s:O*, s:O*}", "role", "tool", "tool_call_id",
                                              json_object_get(item, "call_id"), "content",
                                              json_object_get(item, "output")));
    } else if (strcmp(type, "reasoning") == 0) {
        add_thought(list, item);
    } else {
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

/* Functions are flat here, in the chat an object. The request's own form is kept for the answer. */
int responses_tools(struct job *j, struct refusal *r)
{
    json_t *list = json_object_get(j->body, "tools"), *nested = json_array(), *tool;
    size_t i;

    json_array_foreach(list, i, tool)
    {
        const char *type = json_string_value(json_object_get(tool, "type"));
        char param[32];

        snprintf(param, sizeof param, "tools[%zu]", i);
        if (!type || strcmp(type, "function") != 0) {
            json_decref(nested);
            return refuse(r, 400, "unsupported_value", param,
                          "'%s' must be of type function: there are no others here", param);
        }
        json_array_append_new(nested,
                              json_pack("{s:s, s:O}", "type", "function", "function", tool));
    }
    if (!json_is_array(list)) {
        json_decref(nested);
        return 0;
    }
    json_array_foreach(list, i, tool) if (!json_object_get(tool, "strict"))
        json_object_set_new(tool, "strict", json_true()); /* calls match the schema */
    json_object_set(j->body, "told_tools", list);
    json_object_set_new(j->body, "tools", nested);
    return 0;
}
