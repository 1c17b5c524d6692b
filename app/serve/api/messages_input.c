/* See messages_input.h. */
#include "app/serve/api/messages_input.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdio.h>
#include <string.h>

#define PARAM 80

static bool is_type(const json_t *o, const char *word)
{
    const char *type = json_string_value(json_object_get(o, "type"));

    return type && strcmp(type, word) == 0;
}

static int no_memory(struct refusal *r)
{
    return refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
}

/* ---- tools ---- */

/* Tools that Anthropic's servers run themselves have a type of their own. */
static json_t *function_tool(const json_t *tool, size_t i, struct refusal *r)
{
    const json_t *schema = field_get(tool, "input_schema"), *type = field_get(tool, "type");
    char param[PARAM];

    snprintf(param, sizeof param, "tools[%zu]", i);
    if (type && !is_type(tool, "custom")) {
        const char *word = json_string_value(type);

        refuse(
            r, 400, "unsupported_value", param,
            "'%s' is of type '%.60s', which Anthropic's servers run or only its models know; here "
            "tools have an 'input_schema'",
            param, word ? word : "?");
        return NULL;
    }
    if (!json_is_string(json_object_get(tool, "name"))) {
        refuse(r, 400, "invalid_type", param, "'%s' must be an object with a 'name'", param);
        return NULL;
    }
    if (schema && !json_is_object(schema)) {
        refuse(r, 400, "invalid_type", param, "'%s.input_schema' must be an object", param);
        return NULL;
    }
    return json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name",
                     json_object_get(tool, "name"), "description", field_get(tool, "description"),
                     "parameters", schema);
}

/* Those that a search of tools would load first are not shown to the model. */
static int read_tools(struct job *j, struct refusal *r)
{
    const json_t *list = field_get(j->body, "tools");
    json_t *tools = json_array();

    if (list && !json_is_array(list))
        refuse(r, 400, "invalid_type", "tools", "'tools' must be a list");
    for (size_t i = 0; i < json_array_size(list) && !r->status; i++) {
        json_t *tool = function_tool(json_array_get(list, i), i, r);

        if (json_is_true(field_get(json_array_get(list, i), "defer_loading")))
            json_decref(tool);
        else if (!r->status && (!tool || json_array_append_new(tools, tool) < 0))
            no_memory(r);
    }
    if (!r->status && json_array_size(tools))
        json_object_set(j->body, "tools", tools);
    else
        json_object_del(j->body, "tools");
    json_decref(tools);
    return r->status ? -1 : 0;
}

static int read_choice(struct job *j, struct refusal *r)
{
    static const struct {
        const char *type, *openai;
    } types[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const json_t *choice = field_get(j->body, "tool_choice"), *name;
    json_t *openai = NULL;

    if (!choice)
        return 0;
    name = field_get(choice, "name");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_type(choice, types[i].type))
            openai = json_string(types[i].openai);
    if (is_type(choice, "tool") && json_is_string(name))
        openai = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    if (!openai)
        return refuse(r, 400, "invalid_value", "tool_choice",
                      "'tool_choice' must be an object of type auto, any, none, or tool with the "
                      "'name' of one");
    if (json_is_true(field_get(choice, "disable_parallel_tool_use")))
        json_object_set_new(j->body, "parallel_tool_calls", json_false());
    json_object_set_new(j->body, "tool_choice", openai);
    return 0;
}

/* ---- other fields ---- */

/* The template's variables, unless the request sets them itself. */
static int read_thinking(struct job *j, struct refusal *r)
{
    const json_t *thinking = field_get(j->body, "thinking");
    bool on = is_type(thinking, "enabled") || is_type(thinking, "adaptive");

    if (!thinking)
        return 0;
    if (!on && !is_type(thinking, "disabled"))
        return refuse(r, 400, "invalid_value", "thinking",
                      "'thinking' must be an object of type enabled, adaptive or disabled");
    if (!field_get(j->body, "chat_template_kwargs"))
        json_object_set_new(j->body, "chat_template_kwargs",
                            json_pack("{s:b, s:b}", "enable_thinking", on, "thinking", on));
    return 0;
}

/* "output_config": {"format": {"type": "json_schema", "schema": ...}}; "output_format": the same,
 * earlier. */
static int read_format(struct job *j, struct refusal *r)
{
    const json_t *config = field_get(j->body, "output_config");
    const json_t *format = field_get(config ? config : j->body,
                                     config ? "format" : "output_format");

    if (config && !json_is_object(config))
        return refuse(r, 400, "invalid_type", "output_config", "'output_config' must be an object");
    j->format_name = config ? "output_config.format" : "output_format";
    if (format)
        json_object_set(j->body, "response_format", (json_t *)(uintptr_t)format);
    return 0;
}

int messages_fields(struct job *j, struct refusal *r)
{
    return read_tools(j, r) < 0 || read_choice(j, r) < 0 || read_thinking(j, r) < 0
               ? -1
               : read_format(j, r);
}

/* ---- blocks ---- */

static int put_string(struct strbuf *b, const json_t *text, const char *param, struct refusal *r)
{
    if (!json_is_string(text))
        return refuse(r, 400, "invalid_type", param, "'%s' has no 'text'", param);
    strbuf_put(b, json_string_value(text), json_string_length(text));
    return 0;
}

/* Appends the text of a block that has one. */
static int put_block(struct strbuf *b, const json_t *block, const char *param, struct refusal *r)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    const json_t *source = field_get(block, "source");

    if (!type)
        return refuse(r, 400, "invalid_type", param, "'%s' must be an object with a 'type'", param);
    if (strcmp(type, "text") == 0)
        return put_string(b, json_object_get(block, "text"), param, r);
    if (strcmp(type, "document") == 0 && is_type(source, "text"))
        return put_string(b, json_object_get(source, "data"), param, r);
    return refuse(r, 400, "unsupported_content", param,
                  "'%s' is of type '%.40s'; this model reads text alone", param, type);
}

/* Claude Code's line for the accounts, which changes from request to request: the model would read
 * all that follows anew. */
static bool is_billing(const json_t *block)
{
    static const char head[] = "x-anthropic-billing-header:";
    const char *text = json_string_value(json_object_get(block, "text"));

    return text && strncmp(text, head, sizeof head - 1) == 0;
}

/* What follows stands on a line of its own. */
static void end_line(struct strbuf *b)
{
    if (b->len && b->data[b->len - 1] != '\n')
        strbuf_puts(b, "\n");
}

char *messages_text(const json_t *content, const char *param, struct refusal *r)
{
    struct strbuf b = {0};
    char where[PARAM], *text = NULL;
    int rc = 0;

    strbuf_puts(&b, "");
    if (json_is_string(content))
        strbuf_put(&b, json_string_value(content), json_string_length(content));
    else if (content && !json_is_array(content) && !json_is_null(content))
        rc = refuse(r, 400, "invalid_type", param, "'%s' must be a string or a list of blocks",
                    param);
    for (size_t i = 0; i < json_array_size(content) && rc == 0; i++) {
        const json_t *block = json_array_get(content, i);

        snprintf(where, sizeof where, "%s[%zu]", param, i);
        if (is_billing(block))
            continue;
        end_line(&b);
        rc = put_block(&b, block, where, r);
    }
    if (rc == 0 && !(text = b.len ? strbuf_take(&b, NULL) : mem_string("")))
        no_memory(r);
    strbuf_release(&b);
    return text;
}

/* ---- messages ---- */

/* A message under construction. */
struct turn_parts {
    json_t *list;                /* the messages */
    struct strbuf text, thought; /* of the next one */
    json_t *calls;               /* NULL: none */
    bool assistant;
};

static int add_call(struct turn_parts *p, const json_t *block, const char *param, struct refusal *r)
{
    const json_t *id = field_get(block, "id"), *name = field_get(block, "name"),
                 *input = field_get(block, "input");

    if (!p->assistant)
        return refuse(r, 400, "invalid_value", param,
                      "'%s' is a tool_use, which only an assistant's message has", param);
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return refuse(r, 400, "invalid_type", param,
                      "'%s' must have an 'id', a 'name' and an object 'input'", param);
    if (!p->calls)
        p->calls = json_array();
    return json_array_append_new(p->calls,
                                 json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments", input)) < 0
               ? no_memory(r)
               : 0;
}

/* The message before, if this one continues it: Anthropic takes turns of one side for one turn, and
 * most templates refuse two in a row. */
static json_t *continued(const struct turn_parts *p)
{
    json_t *last = json_array_get(p->list, json_array_size(p->list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    if (!role || strcmp(role, p->assistant ? "assistant" : "user") != 0)
        return NULL;
    return p->thought.len || p->calls || json_object_get(last, "tool_calls") ? NULL : last;
}

static int append_text(struct turn_parts *p, json_t *m, struct refusal *r)
{
    json_t *before = json_object_get(m, "content"), *all;
    struct strbuf b = {0};

    strbuf_put(&b, json_string_value(before), json_string_length(before));
    if (p->text.len)
        end_line(&b);
    strbuf_put(&b, strbuf_text(&p->text), p->text.len);
    all = json_stringn(strbuf_text(&b), b.len);
    strbuf_release(&b);
    strbuf_clear(&p->text);
    return json_object_set_new(m, "content", all) < 0 ? no_memory(r) : 0;
}

/* What was collected becomes a message; none if there is nothing, unless `must`. */
static int end_message(struct turn_parts *p, bool must, struct refusal *r)
{
    json_t *m = continued(p);

    if (!must && !p->text.len && !p->thought.len && !p->calls)
        return 0;
    if (m)
        return append_text(p, m, r);
    m = json_pack("{s:s, s:s%}", "role", p->assistant ? "assistant" : "user", "content",
                  strbuf_text(&p->text), p->text.len);
    if (m && p->thought.len)
        json_object_set_new(m, "reasoning_content",
                            json_stringn(strbuf_text(&p->thought), p->thought.len));
    if (m && p->calls)
        json_object_set_new(m, "tool_calls", p->calls);
    else
        json_decref(p->calls);
    p->calls = NULL;
    strbuf_clear(&p->text);
    strbuf_clear(&p->thought);
    return json_array_append_new(p->list, m) < 0 ? no_memory(r) : 0;
}

/* A result is a message of its own, after what precedes it. */
static int add_result(struct turn_parts *p, const json_t *block, const char *param,
                      struct refusal *r)
{
    const json_t *id = field_get(block, "tool_use_id");
    bool failed = json_is_true(field_get(block, "is_error"));
    char where[PARAM], *text;
    int rc;

    if (p->assistant || !json_is_string(id))
        return refuse(r, 400, "invalid_type", param,
                      p->assistant ? "'%s' is a tool_result, which only a user's message has"
                                   : "'%s' must have a 'tool_use_id'",
                      param);
    snprintf(where, sizeof where, "%.60s.content", param);
    if (end_message(p, false, r) < 0 ||
        !(text = messages_text(field_get(block, "content"), where, r)))
        return -1;
    rc = json_array_append_new(p->list,
                               json_pack("{s:s, s:O, s:s++}", "role", "tool", "tool_call_id", id,
                                         "content", failed ? "Error: " : "", text, ""));
    mem_free(text);
    return rc < 0 ? no_memory(r) : 0;
}

static int add_block(struct turn_parts *p, const json_t *block, const char *param,
                     struct refusal *r)
{
    if (is_type(block, "tool_use"))
        return add_call(p, block, param, r);
    if (is_type(block, "tool_result"))
        return add_result(p, block, param, r);
    if (is_type(block, "redacted_thinking")) /* another server's: empty here */
        return 0;
    if (!is_type(block, "thinking"))
        return put_block(&p->text, block, param, r);
    return put_string(&p->thought, json_object_get(block, "thinking"), param, r);
}

static int add_message(struct turn_parts *p, const json_t *m, size_t i, struct refusal *r)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = field_get(m, "content");
    char param[PARAM];
    size_t had = json_array_size(p->list);
    int rc = 0;

    p->assistant = role && strcmp(role, "assistant") == 0;
    snprintf(param, sizeof param, "messages[%zu]", i);
    /* system: instructions in the middle, as part of the user's turn: few templates have them */
    if (!role || (!p->assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0))
        return refuse(r, 400, role ? "invalid_value" : "missing_required_parameter", param,
                      "'%s.role' must be user, assistant or system", param);
    if (!json_is_string(content) && !json_is_array(content))
        return refuse(r, 400, content ? "invalid_type" : "missing_required_parameter", param,
                      "'%s.content' must be a string or a list of blocks", param);
    if (json_is_string(content))
        strbuf_put(&p->text, json_string_value(content), json_string_length(content));
    for (size_t k = 0; k < json_array_size(content) && rc == 0; k++) {
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", i, k);
        rc = add_block(p, json_array_get(content, k), param, r);
    }
    return rc < 0 ? rc : end_message(p, json_array_size(p->list) == had, r);
}

json_t *messages_list(const json_t *list, struct refusal *r)
{
    struct turn_parts p = {.list = json_array()};
    int rc = 0;

    if (!json_is_array(list) || !json_array_size(list))
        rc = refuse(r, 400, list ? "invalid_type" : "missing_required_parameter", "messages",
                    "'messages' must be a list of at least one message");
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = add_message(&p, json_array_get(list, i), i, r);
    strbuf_release(&p.text);
    strbuf_release(&p.thought);
    json_decref(p.calls);
    if (rc == 0)
        return p.list;
    json_decref(p.list);
    return NULL;
}
