/* See tools.h. */
#include "app/serve/tools.h"

#include "app/serve/constraint.h"
#include "engine/base/mem.h"
#include "engine/text/tool_calls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int check_tool(const json_t *tool, size_t i, struct refusal *r)
{
    const json_t *f = json_object_get(tool, "function");
    char param[32];

    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!json_is_object(tool) || !json_is_object(f) || !json_is_string(json_object_get(f, "name")))
        return refuse(r, 400, "invalid_type", param,
                      "'%s' must be an object with a 'function' that has a 'name'", param);
    if (field_get(f, "parameters") && !json_is_object(json_object_get(f, "parameters")))
        return refuse(r, 400, "invalid_type", param, "'%s.function.parameters' must be an object",
                      param);
    return 0;
}

/* What "tool_choice" says. */
struct choice {
    bool none, required;
    const char *name; /* of the only tool that may be called; NULL: any */
};

static int read_choice(const struct job *j, struct choice *c, struct refusal *r)
{
    const json_t *v = field_get(j->body, "tool_choice"), *f = json_object_get(v, "function");
    const char *word = json_string_value(v);

    *c = (struct choice){0};
    if (json_is_object(v)) {
        /* OpenAI's Responses name it beside the type */
        c->name = json_string_value(json_object_get(f ? f : v, "name"));
        c->required = c->name != NULL;
    }
    if (!v || c->name || (word && strcmp(word, "auto") == 0))
        return 0;
    c->none = word && strcmp(word, "none") == 0;
    c->required = word && strcmp(word, "required") == 0;
    if (c->none || c->required)
        return 0;
    return refuse(r, 400, word ? "invalid_value" : "invalid_type", "tool_choice",
                  "'tool_choice' must be auto, none, required or an object that names a function");
}

static void put_json(struct strbuf *out, const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);

    if (text)
        strbuf_puts(out, text);
    else
        out->failed = true;
    free(text); /* jansson's own */
}

int tools_read(struct job *j, char **text, struct refusal *r)
{
    const json_t *list = field_get(j->body, "tools"), *tool;
    struct strbuf b = {0};
    struct choice choice;
    size_t i;

    *text = NULL;
    if (list && !json_is_array(list))
        return refuse(r, 400, "invalid_type", "tools", "'tools' must be a list");
    json_array_foreach(list, i, tool) if (check_tool(tool, i, r) < 0) return -1;
    if (read_choice(j, &choice, r) < 0 ||
        (choice.required && constraint_call(j, list, choice.name, r) < 0))
        return -1;
    if (choice.none || !json_array_size(list))
        return 0;
    strbuf_puts(&b, "# Tools\n\nYou may call one or more functions to assist with the user query."
                    "\n\nYou are provided with function signatures within <tools></tools> XML tags:"
                    "\n<tools>");
    json_array_foreach(list, i, tool)
    {
        strbuf_putc(&b, '\n');
        put_json(&b, tool);
    }
    strbuf_puts(&b, "\n</tools>\n\nFor each function call, return a json object with function name "
                    "and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
                    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
    *text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    j->wish.tools = true;
    j->wish.call = choice.required;
    return *text ? 0 : refuse(r, 503, "out_of_memory", NULL, "out of memory for the tools");
}

#define CALL_BEGINS "<tool_call>\n"

int tools_prompt(const struct job *j, struct prompt *p, struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    int *ids = NULL, *more, n = 0, rc;
    struct error e = {0};

    if (!j->wish.tools)
        return 0;
    answer_format_learn(&p->parts.format);
    if (!j->wish.call || p->parts.part != PART_ANSWER) /* what it thinks comes first */
        return 0;
    rc = tokenizer_encode(info->tokenizer, CALL_BEGINS, strlen(CALL_BEGINS), true, &ids, &n, &e);
    if (rc == 0 && p->n + n >= info->context)
        rc = error_set(&e, ERR_CONTEXT, "the prompt has %d tokens, the context %d", p->n + n,
                       info->context);
    if (rc == 0 && !(more = mem_resize(p->ids, (size_t)(p->n + n), sizeof *more)))
        rc = error_set(&e, ERR_MEMORY, "out of memory for the prompt");
    if (rc == 0) {
        memcpy(more + p->n, ids, (size_t)n * sizeof *ids);
        p->ids = more;
        p->n += n;
        p->goes_on = true;
        p->parts = (struct answer_parts){0}; /* the call is all of the answer */
    }
    mem_free(ids);
    return rc < 0 ? refuse_error(r, &e) : 0;
}

int tools_put_call(struct strbuf *out, const json_t *call, const char *param, struct refusal *r)
{
    const json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
    const json_t *arguments = json_object_get(f, "arguments");

    if (!json_is_string(name) || !(json_is_string(arguments) || json_is_object(arguments)))
        return refuse(
            r, 400, "invalid_type", param,
            "a call of '%s.tool_calls' must have a 'function' with 'name' and 'arguments'", param);
    if (out->len)
        strbuf_putc(out, '\n');
    strbuf_puts(out, "<tool_call>\n{\"name\": ");
    put_json(out, name);
    strbuf_puts(out, ", \"arguments\": ");
    if (json_is_string(arguments))
        strbuf_puts(out, json_string_value(arguments)); /* as the model wrote it */
    else
        put_json(out, arguments);
    strbuf_puts(out, "}\n</tool_call>");
    return 0;
}

/* ---- what a model said ---- */

static json_t *make_call(const char *name, const json_t *arguments)
{
    char id[32], *dumped = json_dumps(arguments, JSON_COMPACT | JSON_ENCODE_ANY);
    /* some write them as a text that holds JSON */
    const char *text = json_is_string(arguments) ? json_string_value(arguments) : dumped;
    unsigned char bits[12] = {0};
    json_t *o;

    if (getrandom(bits, sizeof bits, GRND_NONBLOCK) < 0)
        memcpy(bits, &dumped, sizeof dumped);
    memcpy(id, "call_", 6);
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(id + 5 + 2 * i, 3, "%02x", bits[i]);
    o = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name",
                  name, "arguments", text ? text : "{}");
    free(dumped); /* jansson's own */
    return o;
}

static int add_call(void *calls, const char *text, const struct tool_call *call)
{
    json_t *name = tool_call_name(text, call), *arguments = tool_call_arguments(text, call);
    int rc = name && arguments
                 ? json_array_append_new(calls, make_call(json_string_value(name), arguments))
                 : -1;

    json_decref(name);
    json_decref(arguments);
    return rc;
}

void tools_end(struct task *t)
{
    json_t *calls = json_array();

    if (tool_calls_each(t->call.data, 0, t->call.len, add_call, calls) > 0) {
        t->tool_calls = calls;
        return;
    }
    json_decref(calls);
    strbuf_put(&t->text, t->call.data, t->call.len);
}
