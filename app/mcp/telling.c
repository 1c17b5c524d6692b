/* See telling.h. */
#include "app/mcp/telling.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/text/hermes.h"

#include <stdint.h>
#include <string.h>

#define NO_RESULT "Error: there is no result; the call was interrupted."
#define SHORT_ID 10

const struct chat_tools telling_api = {
    .tools = true, .calls = true, .results = true, .text_arguments = true};

/* The dialogue in the making. */
struct teller {
    const struct chat_tools *knows;
    struct message *out;
    size_t n;
    bool wrapped; /* the last one is a user's that holds results */
};

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the tools of the conversation");
}

/* ---- the parts of a message ---- */

/* The id of a call as the template needs it: id, or nine letters written to own. */
static const char *id_of(const struct chat_tools *knows, const char *id, char own[SHORT_ID])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t hash = hash_bytes(HASH_START, id, strlen(id));

    if (!knows->short_ids)
        return id;
    for (int i = 0; i < SHORT_ID - 1; i++, hash /= 36)
        own[i] = letters[hash % 36];
    own[SHORT_ID - 1] = '\0';
    return own;
}

/* A new reference: the text, or the object it is. */
static json_t *arguments_of(const struct chat_tools *knows, json_t *arguments)
{
    const char *text = json_string_value(arguments);
    json_t *v;

    if (knows->text_arguments || !text)
        return json_incref(arguments);
    v = *text ? json_loads(text, 0, NULL) : json_object();
    if (json_is_object(v))
        return v;
    json_decref(v);
    return json_incref(arguments);
}

static json_t *call_of(const struct chat_tools *knows, const json_t *call)
{
    const json_t *f = json_object_get(call, "function");
    const char *id = json_string_value(json_object_get(call, "id"));
    char own[SHORT_ID];

    return json_pack("{s:s*, s:s, s:{s:O, s:o}}", "id", id ? id_of(knows, id, own) : NULL, "type",
                     "function", "function", "name", json_object_get(f, "name"), "arguments",
                     arguments_of(knows, json_object_get(f, "arguments")));
}

/* ---- messages ---- */

/* Moves a message to the end; two of the user's become one after results. */
static int move(struct teller *t, struct message *from)
{
    struct message *last = t->n ? &t->out[t->n - 1] : NULL;
    struct strbuf b = {0};

    if (!t->wrapped || from->role != ROLE_USER) {
        t->wrapped = false;
        t->out[t->n++] = *from;
        *from = (struct message){0};
        return 0;
    }
    strbuf_printf(&b, "%s\n\n%s", last->text, from->text);
    mem_free(last->text);
    last->text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    t->wrapped = false;
    return last->text ? 0 : -1;
}

/* Adds the results' text to the user's message that collects it. */
static int wrap(struct teller *t, const char *text)
{
    struct message *m = t->wrapped ? &t->out[t->n - 1] : &t->out[t->n++];
    struct strbuf b = {0};

    if (!t->wrapped)
        *m = (struct message){.role = ROLE_USER};
    else
        strbuf_puts(&b, m->text);
    hermes_put_result(&b, text);
    mem_free(m->text);
    m->text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    t->wrapped = true;
    return m->text ? 0 : -1;
}

/* The result of a call: text. */
static int put_result(struct teller *t, const json_t *call, const char *text)
{
    const char *id = json_string_value(json_object_get(call, "id"));
    const json_t *name = json_object_get(json_object_get(call, "function"), "name");
    struct message *m;
    char own[SHORT_ID];

    if (!t->knows->results)
        return wrap(t, text);
    t->wrapped = false;
    m = &t->out[t->n++];
    *m = (struct message){.role = ROLE_TOOL, .text = mem_string(text)};
    m->members = json_pack("{s:s*, s:O*}", "tool_call_id", id ? id_of(t->knows, id, own) : NULL,
                           "name", name);
    return m->text && m->members ? 0 : -1;
}

/* An assistant's message with these calls, taken; the first one has the text of `from`. */
static int put_calls(struct teller *t, struct message *from, json_t *calls)
{
    struct message *m = &t->out[t->n++];

    t->wrapped = false;
    *m = (struct message){.role = ROLE_ASSISTANT,
                          .text = from->text ? from->text : mem_string(""),
                          .reasoning = from->reasoning};
    from->text = from->reasoning = NULL;
    m->members = json_pack("{s:o}", "tool_calls", calls);
    if (!m->text || !m->members)
        return -1;
    if (!m->text[0] && !t->knows->empty_content)
        json_object_set_new(m->members, "content", json_null());
    return 0;
}

/* Calls as text of the answer. */
static int put_calls_text(struct teller *t, struct message *from, const json_t *calls)
{
    struct strbuf b = {0};
    const json_t *call;
    size_t i;

    strbuf_puts(&b, from->text);
    json_array_foreach(calls, i, call)
    {
        const json_t *f = json_object_get(call, "function");

        hermes_put_call(&b, json_object_get(f, "name"), json_object_get(f, "arguments"));
    }
    mem_free(from->text);
    from->text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    json_decref(from->members);
    from->members = NULL;
    return from->text ? move(t, from) : -1;
}

/* The text of the result of this call among the messages; a note if there is none. */
static const char *result_of(const struct message *results, size_t n, const json_t *call)
{
    const json_t *id = json_object_get(call, "id");

    for (size_t i = 0; i < n; i++)
        if (id && json_equal(json_object_get(results[i].members, "tool_call_id"), id))
            return results[i].text;
    return NO_RESULT;
}

/* An answer with calls, and its n results after it. */
static int put_answer(struct teller *t, struct message *from, size_t n)
{
    json_t *calls = json_incref(json_object_get(from->members, "tool_calls")), *call;
    bool single = t->knows->calls && t->knows->single;
    json_t *all = json_array();
    size_t i;
    int rc = 0;

    if (!t->knows->calls)
        rc = put_calls_text(t, from, calls);
    json_array_foreach(calls, i, call) json_array_append_new(all, call_of(t->knows, call));
    if (t->knows->calls && !single)
        rc = put_calls(t, from, json_incref(all));
    json_array_foreach(calls, i, call)
    {
        if (rc == 0 && single)
            rc = put_calls(t, from, json_pack("[O]", json_array_get(all, i)));
        if (rc == 0)
            rc = put_result(t, call, result_of(from + 1, n, call));
    }
    json_decref(all);
    json_decref(calls);
    return rc;
}

static size_t count_calls(const struct dialogue *d)
{
    size_t n = 0;

    for (size_t i = 0; i < d->n_messages; i++)
        n += json_array_size(json_object_get(d->messages[i].members, "tool_calls"));
    return n;
}

static int tell_messages(struct teller *t, struct message *m, size_t n)
{
    for (size_t i = 0, results; i < n; i += 1 + results) {
        int rc;

        results = 0;
        if (m[i].role == ROLE_TOOL) { /* of no call */
            rc = wrap(t, m[i].text);
        } else if (json_array_size(json_object_get(m[i].members, "tool_calls"))) {
            while (i + 1 + results < n && m[i + 1 + results].role == ROLE_TOOL)
                results++;
            rc = put_answer(t, &m[i], results);
        } else {
            rc = move(t, &m[i]);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the tools ---- */

/* Adds the text to the system message, which is made if missing; before the first message of the
 * user if the template refuses system messages. There is room for one more message. */
static int tell_tools(struct dialogue *d, const char *tools, bool no_system)
{
    struct message *first = &d->messages[0];
    struct strbuf b = {0};

    if (d->n_messages == 0 || (first->role != ROLE_SYSTEM && !no_system)) {
        memmove(first + 1, first, d->n_messages++ * sizeof *first);
        *first = (struct message){.role = ROLE_SYSTEM};
    }
    if (first->role == ROLE_SYSTEM && first->text)
        strbuf_printf(&b, "%s\n\n%s", first->text, tools);
    else if (first->text)
        strbuf_printf(&b, "%s\n\n%s", tools, first->text);
    else
        strbuf_puts(&b, tools);
    mem_free(first->text);
    first->text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    return first->text ? 0 : -1;
}

/* The tools, each with a description; NULL: no memory. */
static json_t *described(const json_t *tools)
{
    json_t *all = json_deep_copy(tools), *tool;
    size_t i;

    json_array_foreach(all, i, tool)
    {
        json_t *f = json_object_get(tool, "function");

        if (!json_is_string(json_object_get(f, "description")))
            json_object_set_new(f, "description", json_string(""));
    }
    return all;
}

int telling_apply(struct dialogue *said, const json_t *tools, const struct chat_tools *knows,
                  struct error *e)
{
    const struct chat_tools nothing = {.no_system = knows->no_system};
    struct teller t = {.knows = knows->tools || !json_array_size(tools) ? knows : &nothing};
    size_t n = said->n_messages;
    struct message *from = said->messages;
    char *text;
    int rc;

    if (!(t.out = mem_alloc(n + 2 * count_calls(said) + 2, sizeof *t.out)))
        return no_memory(e);
    rc = tell_messages(&t, from, n);
    dialogue_release(&(struct dialogue){.messages = from, .n_messages = n});
    said->messages = t.out;
    said->n_messages = t.n;
    said->hermes = json_array_size(tools) > 0;
    if (rc == 0 && json_array_size(tools) && t.knows->tools) {
        said->given = json_pack("{s:o}", "tools",
                                knows->described ? described(tools) : json_deep_copy(tools));
        rc = said->given ? 0 : -1;
    } else if (rc == 0 && json_array_size(tools)) {
        text = hermes_tools(tools);
        rc = text ? tell_tools(said, text, knows->no_system) : -1;
        mem_free(text);
    }
    return rc < 0 ? no_memory(e) : 0;
}
