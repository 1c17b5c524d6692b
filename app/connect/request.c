/* See request.h. */
#include "app/connect/request.h"

#include "app/connect/mend.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Options with a field of their own, by OpenAI's names, else llama-server's, which vLLM and SGLang
 * share for the samplers they have. */
static const struct {
    enum option_id id;
    const char *key;
} fields[] = {
    {OPTION_ID_temp, "temperature"},
    {OPTION_ID_top_k, "top_k"},
    {OPTION_ID_top_p, "top_p"},
    {OPTION_ID_min_p, "min_p"},
    {OPTION_ID_typical_p, "typical_p"},
    {OPTION_ID_top_n_sigma, "top_n_sigma"},
    {OPTION_ID_repeat_penalty, "repeat_penalty"},
    {OPTION_ID_repeat_last_n, "repeat_last_n"},
    {OPTION_ID_presence_penalty, "presence_penalty"},
    {OPTION_ID_frequency_penalty, "frequency_penalty"},
    {OPTION_ID_dry_multiplier, "dry_multiplier"},
    {OPTION_ID_dry_base, "dry_base"},
    {OPTION_ID_dry_allowed_length, "dry_allowed_length"},
    {OPTION_ID_dry_penalty_last_n, "dry_penalty_last_n"},
    {OPTION_ID_xtc_probability, "xtc_probability"},
    {OPTION_ID_xtc_threshold, "xtc_threshold"},
    {OPTION_ID_ignore_eos, "ignore_eos"},
};

static bool was_set(const struct options *o, enum option_id id)
{
    return o->origin[id].from > ORIGIN_MODEL;
}

static void put_field(json_t *body, const struct options *o, enum option_id id, const char *key)
{
    const struct option *option = &option_table[id];
    const void *value = (const char *)o + option->offset;

    if (option->type == OPTION_INT)
        json_object_set_new(body, key, json_integer(*(const int *)value));
    else if (option->type == OPTION_REAL)
        json_object_set_new(body, key, json_real(*(const double *)value));
    else if (option->type == OPTION_FLAG)
        json_object_set_new(body, key, json_boolean(*(const bool *)value));
}

static void put_sampling(json_t *body, const struct options *o, int max_tokens,
                         const uint64_t *seed)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (was_set(o, fields[i].id))
            put_field(body, o, fields[i].id, fields[i].key);
    if (!seed && o->seed != OPTION_SEED_RANDOM)
        seed = &o->seed;
    if (seed) /* limited to what JSON and most servers accept */
        json_object_set_new(body, "seed", json_integer((json_int_t)(*seed & INT64_MAX)));
    if (max_tokens >= 0)
        json_object_set_new(body, "max_tokens", json_integer(max_tokens));
}

static void put_stops(json_t *body, const struct options *o)
{
    json_t *list = json_array();

    for (size_t i = 0; i < o->stop.n; i++)
        json_array_append_new(list, json_string(o->stop.items[i]));
    if (o->stop.n)
        json_object_set(body, "stop", list);
    json_decref(list);
}

/* The template's variables; --reasoning is one of them. */
static int put_template(json_t *body, const struct options *o, struct error *e)
{
    const char *text = o->chat_template_kwargs;
    json_t *kwargs = text ? json_read(text, strlen(text), "--chat-template-kwargs", e)
                          : json_object();

    if (!kwargs) {
        if (e)
            e->code = ERR_USAGE;
        return ERR_USAGE;
    }
    if (o->reasoning != REASONING_AUTO && !json_object_get(kwargs, "enable_thinking"))
        json_object_set_new(kwargs, "enable_thinking", json_boolean(o->reasoning == REASONING_ON));
    if (json_object_size(kwargs))
        json_object_set(body, "chat_template_kwargs", kwargs);
    json_decref(kwargs);
    return 0;
}

/* The text of an option, or of the file named by another one; NULL: neither, or `off`. ERR_USAGE,
 * ERR_IO. */
static int read_text(const char *text, const char *path, char **out, struct error *e)
{
    static const struct file_kind kind = {"grammar or schema", 16 << 20, ERR_USAGE};
    size_t n;

    *out = NULL;
    if (text && *text)
        return strcmp(text, "off") == 0 || (*out = mem_string(text))
                   ? 0
                   : error_set(e, ERR_MEMORY, "out of memory for the request");
    return path && *path ? file_read(path, &kind, out, &n, e) : 0;
}

/* A schema by OpenAI's name, a grammar by llama-server's. */
static int put_constraint(json_t *body, const struct options *o, struct error *e)
{
    char *text;
    json_t *schema;
    int rc = read_text(o->json_schema, o->json_schema_file, &text, e);

    if (rc == 0 && text) {
        schema = json_read(text, strlen(text), "--json-schema", e);
        rc = schema ? 0 : ERR_USAGE;
        if (schema)
            json_object_set_new(body, "response_format",
                                json_pack("{s:s, s:{s:s, s:b, s:o}}", "type", "json_schema",
                                          "json_schema", "name", "answer", "strict", 1, "schema",
                                          schema));
    } else if (rc == 0 && (rc = read_text(o->grammar, o->grammar_file, &text, e)) == 0 && text) {
        json_object_set_new(body, "grammar", json_string(text));
    }
    mem_free(text);
    if (rc < 0 && e)
        e->code = rc;
    return rc;
}

/* Text of a model or a file may be invalid UTF-8, which is replaced for JSON. */
static json_t *text_of(const char *text)
{
    json_t *s = mend_string(text ? text : "");

    return s ? s : json_string("");
}

static json_t *message_of(const struct message *m, const struct server *server)
{
    json_t *o = json_pack("{s:s, s:o}", "role", role_word(m->role), "content", text_of(m->text));

    if (m->members) /* calls of tools, and what a result is the result of */
        json_object_update(o, m->members);
    if (m->reasoning && (server->kind == SERVER_MOETOP || server->kind == SERVER_LLAMA))
        json_object_set_new(o, "reasoning_content", text_of(m->reasoning));
    return o;
}

static void put_dialogue(json_t *body, const struct server *server, const struct dialogue *said)
{
    json_t *list = json_array();

    if (said->raw) {
        json_object_set_new(body, "prompt",
                            text_of(said->n_messages ? said->messages[0].text : ""));
        json_decref(list);
        return;
    }
    for (size_t i = 0; i < said->n_messages; i++)
        json_array_append_new(list, message_of(&said->messages[i], server));
    json_object_set_new(body, "messages", list);
    if (json_object_get(said->given, "tools"))
        json_object_set(body, "tools", json_object_get(said->given, "tools"));
    if (said->continue_last && server->kind != SERVER_MOETOP && server->kind != SERVER_LLAMA) {
        /* needed by vLLM and SGLang; the others do this by default */
        json_object_set_new(body, "continue_final_message", json_true());
        json_object_set_new(body, "add_generation_prompt", json_false());
    }
}

int request_make(const struct options *o, const struct server *server, const struct dialogue *said,
                 int max_tokens, const uint64_t *seed, struct request *out, struct error *e)
{
    json_t *body = json_pack("{s:s, s:b, s:{s:b}}", "model", server->model, "stream", 1,
                             "stream_options", "include_usage", 1);
    char *text = NULL;
    int rc = 0;

    *out = (struct request){.path = said->raw ? "/v1/completions" : "/v1/chat/completions"};
    put_dialogue(body, server, said);
    put_sampling(body, o, max_tokens, seed);
    put_stops(body, o);
    if (!said->raw)
        rc = put_template(body, o, e);
    if (rc == 0 && (rc = put_constraint(body, o, e)) == 0) {
        text = json_dumps(body, JSON_COMPACT);
        out->body = text ? mem_string(text) : NULL;
        rc = out->body ? 0 : error_set(e, ERR_MEMORY, "out of memory for the request");
    }
    free(text);
    json_decref(body);
    return rc;
}

void request_address(struct request *r, const struct server *server)
{
    json_t *body = r->body ? json_loads(r->body, JSON_ALLOW_NUL, NULL) : NULL;
    const char *name = json_string_value(json_object_get(body, "model"));
    char *text = NULL, *copy;

    if (name && strcmp(name, server->model) != 0) {
        json_object_set_new(body, "model", json_string(server->model));
        text = json_dumps(body, JSON_COMPACT);
    }
    if (text && (copy = mem_string(text))) {
        mem_free(r->body);
        r->body = copy;
    }
    free(text); /* allocated by jansson */
    json_decref(body);
}

void request_release(struct request *r)
{
    mem_free(r->body);
    *r = (struct request){0};
}
