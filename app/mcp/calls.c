/* See calls.h. */
#include "app/mcp/calls.h"

#include "engine/base/mem.h"
#include "engine/text/tool_calls.h"

#include <stdio.h>
#include <string.h>

void calls_text_note(struct calls_text *t, const struct token_event *token)
{
    if (token->part == PART_ANSWER)
        strbuf_put(&t->plain, token->text, token->len);
    else if (token->part == PART_TOOL_CALL)
        strbuf_put(&t->called, token->text, token->len);
}

void calls_text_clear(struct calls_text *t)
{
    strbuf_clear(&t->plain);
    strbuf_clear(&t->called);
}

void calls_text_release(struct calls_text *t)
{
    strbuf_release(&t->plain);
    strbuf_release(&t->called);
}

struct collector {
    const json_t *tools;
    json_t *calls;
    size_t serial;
    bool strangers; /* a call names a tool that is not among them */
};

/* The function of this name; NULL: none. */
static const json_t *function_named(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        const json_t *f = json_object_get(tool, "function");
        const char *its = json_string_value(json_object_get(f, "name"));

        if (name && its && strcmp(name, its) == 0)
            return f;
    }
    return NULL;
}

static int add_call(void *ctx, const char *text, const struct tool_call *call)
{
    struct collector *c = ctx;
    json_t *name = tool_call_name(text, call);
    const json_t *f = function_named(c->tools, json_string_value(name));
    char *arguments = tool_call_arguments_text(text, call, json_object_get(f, "parameters"));
    char id[48];
    int rc = -1;

    snprintf(id, sizeof id, "call_%zu_%zu", c->serial, json_array_size(c->calls) + 1);
    if (json_is_string(name) && arguments)
        rc = json_array_append_new(c->calls, json_pack("{s:s, s:s, s:{s:O, s:s}}", "id", id, "type",
                                                       "function", "function", "name", name,
                                                       "arguments", arguments));
    c->strangers = c->strangers || !f;
    mem_free(arguments);
    json_decref(name);
    return rc;
}

json_t *calls_read(struct calls_text *t, const json_t *tools, size_t serial)
{
    bool marked = t->called.len > 0;
    const struct strbuf *from = marked ? &t->called : &t->plain;
    struct collector c = {.tools = tools, .calls = json_array(), .serial = serial};
    bool found = from->len && !from->failed &&
                 tool_calls_each(from->data, 0, from->len, add_call, &c) > 0;

    if (found && (marked || !c.strangers)) {
        if (!marked)
            strbuf_clear(&t->plain);
        return c.calls;
    }
    json_decref(c.calls);
    return NULL;
}
