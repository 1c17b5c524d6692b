/* One line of a batch: JSON with checked keys, or a plain prompt. Main thread. Strict: a misspelled
 * key would silently change what is measured, so it is an error with the nearest name. */
#include "app/headless/batch_line.h"

#include "app/common/did_you_mean.h"
#include "app/setup/sampling_options.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/model/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define EDITS "expert_edits"
#define EDITS_MOST 256 /* as in a request to the server */

/* in addition to those of sampling */
static const char *const own_keys[] = {"id",         "prompt", "messages", "system",      "raw",
                                       "max_tokens", "stop",   "grammar",  "json_schema", EDITS};
#define OWN_KEYS (sizeof own_keys / sizeof *own_keys)
#define KEYS_MAX 48
static const char *const roles[] = {"system", "user", "assistant"};

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the line");
}

/* null means absent. */
static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

static int check_keys(json_t *o, const char *const *known, size_t n, const char *what,
                      struct error *e)
{
    const char *key;
    json_t *v;

    json_object_foreach(o, key, v)
    {
        size_t i = 0;
        int near;

        while (i < n && strcmp(key, known[i]) != 0)
            i++;
        if (i < n)
            continue;
        near = nearest_word(key, known, n);
        return near < 0 ? error_set(e, ERR_INPUT, "%sunknown key '%.60s'", what, key)
                        : error_set(e, ERR_INPUT, "%sunknown key '%.60s'; did you mean '%s'?", what,
                                    key, known[near]);
    }
    return 0;
}

static int check_all_keys(json_t *o, struct error *e)
{
    const char *known[KEYS_MAX], *key;
    size_t n = 0;

    for (; n < OWN_KEYS; n++)
        known[n] = own_keys[n];
    for (size_t i = 0; n < KEYS_MAX && (key = sampling_json_key(i)); i++)
        known[n++] = key;
    return check_keys(o, known, n, "", e);
}

static int add_message(struct dialogue *d, enum role role, const char *text, size_t n,
                       struct error *e)
{
    char *copy;

    if (memchr(text, 0, n))
        return error_set(e, ERR_INPUT, "the text holds a NUL, which cannot be part of a prompt");
    copy = mem_string_n(text, n);
    if (!copy)
        return no_memory(e);
    d->messages[d->n_messages++] = (struct message){.role = role, .text = copy};
    return 0;
}

static int read_message(struct dialogue *d, json_t *o, size_t i, struct error *e)
{
    static const char *const known[] = {"role", "content", "reasoning_content"};
    const json_t *thought = json_object_get(o, "reasoning_content");
    const json_t *role = json_object_get(o, "role"), *content = json_object_get(o, "content");
    char what[48];
    int r = 0, rc;

    snprintf(what, sizeof what, "message %zu: ", i + 1);
    if (!json_is_object(o))
        return error_set(e, ERR_INPUT, "message %zu is no object with 'role' and 'content'", i + 1);
    if ((rc = check_keys(o, known, 3, what, e)) < 0)
        return rc;
    while (json_is_string(role) && r < 3 && strcmp(json_string_value(role), roles[r]) != 0)
        r++;
    if (!json_is_string(role) || r == 3)
        return error_set(e, ERR_INPUT, "%s'role' must be system, user or assistant", what);
    if (!json_is_string(content))
        return error_set(e, ERR_INPUT, "%s'content' must be a string", what);
    if (thought && (!json_is_string(thought) || r != ROLE_ASSISTANT))
        return error_set(e, ERR_INPUT, "%s'reasoning_content' must be a string of an assistant's",
                         what);
    rc = add_message(d, (enum role)r, json_string_value(content), json_string_length(content), e);
    if (rc < 0 || !thought)
        return rc;
    if (strlen(json_string_value(thought)) != json_string_length(thought))
        return error_set(e, ERR_INPUT, "the text holds a NUL, which cannot be part of a prompt");
    d->messages[d->n_messages - 1].reasoning = mem_string(json_string_value(thought));
    return d->messages[d->n_messages - 1].reasoning ? 0 : no_memory(e);
}

static int read_messages(struct dialogue *d, const json_t *o, const char *system, struct error *e)
{
    const json_t *prompt = get(o, "prompt"), *list = get(o, "messages"), *own = get(o, "system");
    size_t n = json_is_array(list) ? json_array_size(list) : 1;
    bool first_is_system;
    int rc = 0;

    if (!prompt == !list)
        return error_set(e, ERR_INPUT,
                         prompt ? "'prompt' and 'messages' exclude each other"
                                : "'prompt' or 'messages' is missing");
    if (prompt && !json_is_string(prompt))
        return error_set(e, ERR_INPUT, "'prompt' must be a string");
    if (list && (!json_is_array(list) || !n))
        return error_set(e, ERR_INPUT, "'messages' must be a list of at least one message");
    if (own && !json_is_string(own))
        return error_set(e, ERR_INPUT, "'system' must be a string");
    if (d->raw && (list || own))
        return error_set(e, ERR_INPUT,
                         "'raw' continues a 'prompt' as it stands; '%s' has no place there",
                         list ? "messages" : "system");
    d->messages = mem_alloc(n + 1, sizeof *d->messages);
    if (!d->messages)
        return no_memory(e);
    first_is_system = list && json_is_string(json_object_get(json_array_get(list, 0), "role")) &&
                      strcmp(json_string_value(json_object_get(json_array_get(list, 0), "role")),
                             "system") == 0;
    if (own && first_is_system)
        return error_set(e, ERR_INPUT,
                         "'system' and a first message of role system exclude each other");
    if (own && json_string_length(own))
        rc = add_message(d, ROLE_SYSTEM, json_string_value(own), json_string_length(own), e);
    else if (!own && system && *system && !d->raw && !first_is_system)
        rc = add_message(d, ROLE_SYSTEM, system, strlen(system), e);
    if (rc == 0 && prompt)
        rc = add_message(d, ROLE_USER, json_string_value(prompt), json_string_length(prompt), e);
    for (size_t i = 0; list && i < n && rc == 0; i++)
        rc = read_message(d, json_array_get(list, i), i, e);
    if (rc == 0 && d->messages[d->n_messages - 1].role == ROLE_SYSTEM)
        return error_set(e, ERR_INPUT,
                         "the conversation ends with a system message; nobody asks for an answer");
    d->continue_last = rc == 0 && d->messages[d->n_messages - 1].role == ROLE_ASSISTANT;
    return rc;
}

static int read_int(const json_t *o, const char *key, int least, int *out, struct error *e)
{
    const json_t *v = get(o, key);

    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > INT_MAX)
        return error_set(e, ERR_INPUT, "'%s' must be a whole number from %d", key, least);
    *out = (int)json_integer_value(v);
    return 0;
}

static int read_stops(struct batch_line *line, const json_t *o, struct error *e)
{
    struct turn *t = &line->turn;
    const json_t *v = get(o, "stop");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    char **stops;

    if (!v)
        return 0;
    stops = mem_alloc(n, sizeof *stops);
    if (!stops)
        return no_memory(e);
    t->stops = stops;
    t->n_stops = 0;
    line->own_stops = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;

        if (!json_is_string(s) || !json_string_length(s) ||
            strlen(json_string_value(s)) != json_string_length(s))
            return error_set(e, ERR_INPUT,
                             "'stop' must be a string or a list of strings, none empty");
        if (!(stops[t->n_stops] = mem_string(json_string_value(s))))
            return no_memory(e);
        t->n_stops++;
    }
    return 0;
}

static int read_grammar(struct batch_line *line, const json_t *o, struct error *e)
{
    const struct dialogue *d = &line->said;
    struct turn *t = &line->turn;
    const json_t *v = get(o, "grammar"), *schema = get(o, "json_schema");
    char *json;
    int rc = 0;

    if (v && !json_is_string(v))
        return error_set(e, ERR_INPUT, "'grammar' must be a string");
    if (v) {
        grammar_free(t->grammar);
        rc = grammar_from_gbnf(&t->grammar, json_string_value(v), json_string_length(v), e);
    }
    if (v && schema)
        return error_set(e, ERR_INPUT, "'grammar' and 'json_schema' exclude each other");
    if (schema) {
        grammar_free(t->grammar);
        t->grammar = NULL;
        if (!(json = json_dumps(schema, JSON_ENCODE_ANY)))
            return no_memory(e);
        rc = grammar_from_schema(&t->grammar, json, strlen(json), e);
        free(json);
    }
    if (rc < 0 || !t->grammar || !d->continue_last)
        return rc;
    t->begun = mem_string(d->messages[d->n_messages - 1].text);
    return t->begun ? 0 : no_memory(e);
}

static int read_edits(struct batch_line *line, const json_t *o, struct error *e)
{
    const json_t *list = get(o, EDITS);

    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > EDITS_MOST)
        return error_set(e, ERR_INPUT,
                         "'" EDITS "' must be a list of at most %d strings such as \"off L17/E9\"",
                         EDITS_MOST);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);

        if (!json_is_string(s) || strlen(json_string_value(s)) != json_string_length(s))
            return error_set(e, ERR_INPUT,
                             "'" EDITS "' [%zu] must be a string such as \"off L17/E9\"", i);
    }
    line->edits = json_deep_copy(list);
    return line->edits ? 0 : no_memory(e);
}

int batch_line_edit(struct batch_line *line, const struct engine_info *info, struct error *e)
{
    const char *lines[EDITS_MOST];
    int n = (int)json_array_size(line->edits), rc;

    line->turn.edited = true;
    if (!line->edits) {
        line->turn.edits = expert_edits_share(info->edits);
        return 0;
    }
    for (int i = 0; i < n; i++)
        lines[i] = json_string_value(json_array_get(line->edits, (size_t)i));
    rc = expert_edits_read(&line->turn.edits, NULL, &info->model->hp, lines, n, e);
    if (rc == ERR_USAGE)
        rc = e->code = ERR_INPUT; /* of the line, not of the command */
    return rc < 0 ? error_prefix(e, "'" EDITS "'") : 0;
}

static int read_object(struct batch_line *line, json_t *o, const char *system, struct error *e)
{
    struct dialogue *d = &line->said;
    const json_t *id = json_object_get(o, "id"), *raw = get(o, "raw");
    int rc;

    if (id && (json_is_object(id) || json_is_array(id)))
        return error_set(e, ERR_INPUT, "'id' must be a string or a number");
    if (id && !(line->id = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT)))
        return no_memory(e);
    if ((rc = check_all_keys(o, e)) < 0)
        return rc;
    if (raw && !json_is_boolean(raw))
        return error_set(e, ERR_INPUT, "'raw' must be true or false");
    if (raw)
        d->raw = json_is_true(raw);
    else if (get(o, "messages") || get(o, "system"))
        d->raw = false; /* --raw applies to plain prompts only */
    if ((rc = read_messages(d, o, system, e)) < 0 ||
        (rc = read_int(o, "max_tokens", -1, &line->turn.max_tokens, e)) < 0 ||
        (rc = sampling_read_json(&line->turn.sampling, o, NULL, e)) < 0 ||
        (rc = read_grammar(line, o, e)) < 0 || (rc = read_edits(line, o, e)) < 0)
        return rc;
    return read_stops(line, o, e);
}

int batch_line_read(struct batch_line *line, const char *text, size_t n,
                    const struct turn *defaults, bool raw, const char *system, struct error *e)
{
    struct dialogue *d = &line->said;
    struct error why = {0};
    json_t *root;
    int rc;

    *line = (struct batch_line){.said = {.raw = raw}, .turn = *defaults};
    line->turn.grammar = grammar_share(defaults->grammar);
    if (!utf8_valid(text, n))
        return error_set(e, ERR_INPUT, "the line is not UTF-8");
    if (n && text[0] == '{') {
        root = json_read(text, n, "the line", &why);
        if (!root)
            return error_set(e, ERR_INPUT, "%s", why.text);
        rc = read_object(line, root, system, e);
        json_decref(root);
        return rc;
    }
    d->messages = mem_alloc(2, sizeof *d->messages);
    if (!d->messages)
        return no_memory(e);
    if (system && *system && !d->raw &&
        (rc = add_message(d, ROLE_SYSTEM, system, strlen(system), e)) < 0)
        return rc;
    return add_message(d, ROLE_USER, text, n, e);
}

void batch_line_release(struct batch_line *line)
{
    dialogue_release(&line->said);
    mem_free(line->turn.prompt.ids);
    mem_free(line->turn.begun);
    grammar_free(line->turn.grammar);
    for (size_t i = 0; line->own_stops && i < line->turn.n_stops; i++)
        mem_free(line->turn.stops[i]);
    if (line->own_stops)
        mem_free(line->turn.stops);
    expert_edits_free(line->turn.edits);
    json_decref(line->edits);
    free(line->id); /* allocated by jansson */
    *line = (struct batch_line){0};
}
