/* See tools.h. */
#include "app/serve/request/tools.h"

#include "app/serve/request/constraint.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/text/chat_template.h"
#include "engine/text/hermes.h"

#include <stdlib.h>
#include <string.h>

static bool is_type(const json_t *v, const char *type)
{
    const char *its = json_string_value(json_object_get(v, "type"));

    return its && strcmp(its, type) == 0;
}

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

/* The parsed "tool_choice". */
struct choice {
    bool none, required;
    const char *name;      /* of the only tool allowed; NULL: any */
    const json_t *allowed; /* of allowed_tools: a list of tools; NULL: all */
};

/* {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}; in OpenAI's Responses
 * mode and tools are beside the type. */
static int read_allowed(const json_t *v, struct choice *c, struct refusal *r)
{
    const json_t *own = field_get(v, "allowed_tools");
    const char *mode;

    if (!own)
        own = v;
    mode = json_string_value(field_get(own, "mode"));
    c->allowed = field_get(own, "tools");
    c->required = mode && strcmp(mode, "required") == 0;
    if (mode && !c->required && strcmp(mode, "auto") != 0)
        return refuse(r, 400, "invalid_value", "tool_choice",
                      "the 'mode' of 'tool_choice' must be auto or required");
    if (!json_array_size(c->allowed))
        return refuse(r, 400, "invalid_value", "tool_choice",
                      "the 'tools' of 'tool_choice' must be a list of functions, at least one");
    return 0;
}

static int read_choice(const struct job *j, struct choice *c, struct refusal *r)
{
    const json_t *v = field_get(j->body, "tool_choice"), *f = json_object_get(v, "function");
    const char *word = json_string_value(v);

    *c = (struct choice){0};
    if (is_type(v, "allowed_tools"))
        return read_allowed(v, c, r);
    if (json_is_object(v)) {
        /* in OpenAI's Responses the name is beside the type */
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
                  "'tool_choice' must be auto, none, required or an object that names a function "
                  "or allowed_tools");
}

/* ---- allowed tools ---- */

static const char *name_of(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");

    return json_string_value(json_object_get(f ? f : tool, "name"));
}

static bool is_named(const json_t *list, const char *name)
{
    const json_t *each;
    size_t i;

    json_array_foreach(list, i, each)
    {
        const char *its = name_of(each);

        if (its && strcmp(its, name) == 0)
            return true;
    }
    return false;
}

/* The model sees the allowed ones alone; the others' names are kept, to recognize calls of them. */
static int keep_allowed(struct job *j, const json_t *allowed, struct refusal *r)
{
    json_t *kept = json_array(), *others = json_array(), *tool;
    const json_t *each;
    size_t i;

    json_array_foreach(json_object_get(j->body, "tools"), i, tool)
    {
        bool is_kept = is_named(allowed, name_of(tool));

        if (json_array_append(is_kept ? kept : others, tool) < 0)
            refuse(r, 503, "out_of_memory", NULL, "out of memory for the tools");
    }
    json_array_foreach(allowed, i, each)
    {
        const char *name = name_of(each);

        /* tools of other kinds are in no list of functions */
        if (!r->status && (name || !is_type(each, "mcp")) && (!name || !is_named(kept, name)))
            refuse(r, 400, "invalid_value", "tool_choice",
                   name ? "'tool_choice' names '%.100s', which is none of 'tools'"
                        : "a tool of 'tool_choice' has no 'name'",
                   name);
    }
    json_object_set_new(j->body, "tools", kept);
    json_object_set_new(j->body, TOOLS_FORBIDDEN, others);
    return r->status ? -1 : 0;
}

int tools_read(struct job *j, struct telling *t, struct refusal *r)
{
    const json_t *list = field_get(j->body, "tools"), *tool;
    const struct chat_template *chat = server_info(j->server)->chat;
    struct choice choice;
    bool own;
    size_t i;

    *t = (struct telling){0};
    if (list && !json_is_array(list))
        return refuse(r, 400, "invalid_type", "tools", "'tools' must be a list");
    json_array_foreach(list, i, tool) if (check_tool(tool, i, r) < 0) return -1;
    json_object_del(j->body, TOOLS_FORBIDDEN);
    if (read_choice(j, &choice, r) < 0 ||
        (choice.allowed && keep_allowed(j, choice.allowed, r) < 0))
        return -1;
    list = json_object_get(j->body, "tools");
    if (choice.required && constraint_call(j, list, choice.name, r) < 0)
        return -1;
    if (chat)
        t->knows = chat_template_tools(chat);
    own = t->knows.tools && (!choice.required || t->knows.hermes);
    t->knows.tools = false;
    if (choice.none || !json_array_size(list))
        return 0;
    j->wish.tools = true;
    j->wish.call = choice.required;
    if (own) {
        t->knows.tools = true;
        return 0;
    }
    t->knows = (struct chat_tools){.no_system = t->knows.no_system};
    t->text = hermes_tools(list);
    return t->text ? 0 : refuse(r, 503, "out_of_memory", NULL, "out of memory for the tools");
}

static int add_kwargs(const struct job *j, json_t *given, struct refusal *r)
{
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt"};
    const json_t *kwargs = field_get(j->body, "chat_template_kwargs");

    if (!kwargs)
        return 0;
    if (!json_is_object(kwargs))
        return refuse(r, 400, "invalid_type", "chat_template_kwargs",
                      "'chat_template_kwargs' must be an object");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (json_object_get(kwargs, taken[i]))
            return refuse(r, 400, "invalid_value", "chat_template_kwargs",
                          "'chat_template_kwargs' must not have '%s'", taken[i]);
    return json_object_update(given, (json_t *)(uintptr_t)kwargs);
}

/* The tools, each with a description; NULL: no memory. */
static json_t *described(const json_t *tools)
{
    json_t *all = json_array(), *tool;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        json_t *f = json_object_get(tool, "function");

        if (json_is_string(json_object_get(f, "description"))) {
            json_array_append(all, tool);
            continue;
        }
        f = json_copy(f);
        tool = json_copy(tool);
        json_object_set_new(f, "description", json_string(""));
        json_object_set_new(tool, "function", f);
        json_array_append_new(all, tool);
    }
    return all;
}

int tools_given(const struct job *j, const struct telling *t, json_t **given, struct refusal *r)
{
    const json_t *tools = json_object_get(j->body, "tools");

    *given = json_object();
    if (add_kwargs(j, *given, r) < 0)
        return -1;
    if (t->knows.tools)
        json_object_set_new(*given, "tools",
                            t->knows.described ? described(tools)
                                               : json_incref((json_t *)(uintptr_t)tools));
    if (json_object_size(*given))
        return 0;
    json_decref(*given);
    *given = NULL;
    return 0;
}

#define CALL_BEGINS "<tool_call>\n"

int tools_prompt(const struct job *j, struct prompt *p, struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    int *ids = NULL, n = 0, rc;
    struct error e = {0};

    if (!j->wish.tools)
        return 0;
    answer_format_learn(&p->parts.format);
    if (!j->wish.call || p->parts.part != PART_ANSWER) /* reasoning comes first */
        return 0;
    rc = tokenizer_encode(info->tokenizer, CALL_BEGINS, strlen(CALL_BEGINS), true, &ids, &n, &e);
    if (rc == 0 && p->n + n >= info->context)
        rc = error_set(&e, ERR_CONTEXT, "the prompt has %d tokens, the context %d", p->n + n,
                       info->context);
    if (rc == 0 && !MEM_FIT(p->ids, p->n + n + 2 * p->n_messages))
        rc = error_set(&e, ERR_MEMORY, "out of memory for the prompt");
    if (rc == 0) {
        /* the list of messages stays behind them */
        memmove(p->ids + p->n + n, p->ids + p->n, 2 * (size_t)p->n_messages * sizeof *ids);
        memcpy(p->ids + p->n, ids, (size_t)n * sizeof *ids);
        p->n += n;
        p->goes_on = true;
        p->parts = (struct answer_parts){0}; /* the call is the whole answer */
    }
    mem_free(ids);
    return rc < 0 ? refuse_error(r, &e) : 0;
}

static int check_call(const json_t *call, const char *param, struct refusal *r)
{
    const json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
    const json_t *arguments = json_object_get(f, "arguments");

    if (!json_is_string(name) || !(json_is_string(arguments) || json_is_object(arguments)))
        return refuse(
            r, 400, "invalid_type", param,
            "a call of '%s.tool_calls' must have a 'function' with 'name' and 'arguments'", param);
    return 0;
}

int tools_put_call(struct strbuf *out, const json_t *call, const char *param, struct refusal *r)
{
    const json_t *f = json_object_get(call, "function");

    if (check_call(call, param, r) < 0)
        return -1;
    hermes_put_call(out, json_object_get(f, "name"), json_object_get(f, "arguments"));
    return 0;
}

const char *tools_opening(const struct job *j)
{
    return j->wish.call ? CALL_BEGINS : "";
}

/* ---- for a template ---- */

const char *tools_id(const struct chat_tools *knows, const char *id, char own[TOOLS_SHORT_ID])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    size_t n = strlen(id), good = 0;
    uint64_t hash;

    while (good < n && strchr(letters, id[good] | ('A' <= id[good] && id[good] <= 'Z' ? 32 : 0)))
        good++;
    if (!knows->short_ids || (good == n && n == TOOLS_SHORT_ID - 1))
        return id;
    hash = hash_bytes(HASH_START, id, n);
    for (int i = 0; i < TOOLS_SHORT_ID - 1; i++, hash /= 36)
        own[i] = letters[hash % 36];
    own[TOOLS_SHORT_ID - 1] = '\0';
    return own;
}

/* As the template needs them: an object, or the original text. NULL: no memory. */
static json_t *arguments_value(const struct chat_tools *knows, const json_t *arguments)
{
    const char *text = json_string_value(arguments);
    json_t *v;
    char *dumped;

    if (knows->text_arguments && !text) {
        dumped = json_dumps(arguments, 0);
        v = dumped ? json_string(dumped) : NULL;
        free(dumped); /* allocated by jansson */
        return v;
    }
    if (knows->text_arguments || !text)
        return json_incref((json_t *)(uintptr_t)arguments);
    v = *text ? json_loads(text, 0, NULL) : json_object();
    if (json_is_object(v))
        return v;
    json_decref(v);
    return json_incref((json_t *)(uintptr_t)arguments);
}

json_t *tools_call_value(const struct chat_tools *knows, const json_t *call, const char *param,
                         struct refusal *r)
{
    const json_t *f = json_object_get(call, "function");
    const char *id = json_string_value(json_object_get(call, "id"));
    char own[TOOLS_SHORT_ID];
    json_t *v;

    if (check_call(call, param, r) < 0)
        return NULL;
    v = json_pack("{s:s*, s:s, s:{s:O, s:o}}", "id", id ? tools_id(knows, id, own) : NULL, "type",
                  "function", "function", "name", json_object_get(f, "name"), "arguments",
                  arguments_value(knows, json_object_get(f, "arguments")));
    if (!v)
        refuse(r, 503, "out_of_memory", NULL, "out of memory for the conversation");
    return v;
}
