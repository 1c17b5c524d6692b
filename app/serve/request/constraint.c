/* See constraint.h. */
#include "app/serve/request/constraint.h"

#include <stdlib.h>
#include <string.h>

typedef int make_fn(struct grammar **out, const char *text, size_t n, struct error *e);

static int make(struct job *j, make_fn *from, const char *text, size_t n, const char *param,
                struct refusal *r)
{
    struct error e = {0};
    int rc;

    grammar_free(j->grammar);
    j->grammar = NULL;
    rc = from(&j->grammar, text, n, &e);
    if (rc == 0)
        return 0;
    if (rc != ERR_INPUT)
        return refuse_error(r, &e);
    return refuse(r, 400, from == grammar_from_schema ? "invalid_json_schema" : "invalid_grammar",
                  param, "'%s': %s", param, e.text);
}

static int make_schema(struct job *j, const json_t *schema, const char *param, struct refusal *r)
{
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    int rc = text ? make(j, grammar_from_schema, text, strlen(text), param, r)
                  : refuse(r, 503, "out_of_memory", NULL, "out of memory for the schema");

    free(text); /* allocated by jansson */
    return rc;
}

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

/* OpenAI's: {"type": "json_schema", "json_schema": {"schema": …}}; llama-server's: "schema" next to
 * the type. */
static int read_format(struct job *j, const json_t *format, struct refusal *r)
{
    static const char object[] = "{\"type\": \"object\"}";
    const char *type = json_string_value(json_object_get(format, "type")), *name = j->format_name;
    const json_t *named = field_get(format, "json_schema"), *schema = field_get(format, "schema");

    if (!type)
        return refuse(r, 400, "invalid_type", name, "'%s' must be an object with a 'type'", name);
    if (strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0)
        return refuse(r, 400, "invalid_value", name,
                      "'%s.type' must be text, json_object or json_schema", name);
    if (named)
        schema = field_get(named, "schema");
    if (strcmp(type, "json_object") == 0 && !schema)
        return make(j, grammar_from_schema, object, strlen(object), name, r);
    if (!is_schema(schema))
        return refuse(r, 400, schema ? "invalid_type" : "missing_required_parameter", name,
                      "'%s%s.schema' must be a JSON schema", name, named ? ".json_schema" : "");
    return make_schema(j, schema, name, r);
}

int constraint_read(struct job *j, struct refusal *r)
{
    const json_t *format = field_get(j->body, "response_format"),
                 *schema = field_get(j->body, "json_schema"),
                 *grammar = field_get(j->body, "grammar");

    if (grammar && !json_is_string(grammar))
        return refuse(r, 400, "invalid_type", "grammar", "'grammar' must be a string (GBNF)");
    if (json_string_length(grammar) == 0)
        grammar = NULL;
    if (grammar && schema)
        return refuse(r, 400, "invalid_value", "grammar",
                      "'grammar' and 'json_schema' exclude each other");
    if (schema && !is_schema(schema))
        return refuse(r, 400, "invalid_type", "json_schema", "'json_schema' must be a JSON schema");
    if (format && read_format(j, format, r) < 0)
        return -1;
    if (j->grammar && (grammar || schema))
        return refuse(r, 400, "invalid_value", j->format_name,
                      "'%s' excludes 'grammar' and 'json_schema'", j->format_name);
    if (schema)
        return make_schema(j, schema, "json_schema", r);
    return grammar ? make(j, grammar_from_gbnf, json_string_value(grammar),
                          json_string_length(grammar), "grammar", r)
                   : 0;
}

/* ---- calls ---- */

/* "#/…" referred to a tool's own schema, which is now nested: rewrites every $ref. */
static void move_refs(json_t *v, const char *where)
{
    const char *to = json_string_value(json_object_get(v, "$ref"));
    json_t *each;
    const char *key;
    size_t i;
    void *next;

    if (to && to[0] == '#')
        json_object_set_new(v, "$ref", json_sprintf("#%s%s", where, to + 1));
    json_object_foreach_safe(v, next, key, each) move_refs(each, where);
    json_array_foreach(v, i, each) move_refs(each, where);
}

/* A call has the parameters listed by the tool; others only if its schema allows them. */
static void close_objects(json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    json_t *each;
    const char *key;
    size_t i;

    json_object_foreach(v, key, each) close_objects(each);
    json_array_foreach(v, i, each) close_objects(each);
    if (type && strcmp(type, "object") == 0 && json_is_object(json_object_get(v, "properties")) &&
        !json_object_get(v, "additionalProperties"))
        json_object_set_new(v, "additionalProperties", json_false());
}

static json_t *call_schema(const json_t *function, size_t i)
{
    const json_t *parameters = field_get(function, "parameters");
    char where[64];
    json_t *own = parameters ? json_deep_copy(parameters)
                             : json_pack("{s:s, s:{}, s:b}", "type", "object", "properties",
                                         "additionalProperties", 0);

    snprintf(where, sizeof where, "/anyOf/%zu/properties/arguments", i);
    move_refs(own, where);
    close_objects(own);
    return json_pack("{s:s, s:{s:{s:O}, s:o}, s:[ss], s:b}", "type", "object", "properties", "name",
                     "const", json_object_get(function, "name"), "arguments", own, "required",
                     "name", "arguments", "additionalProperties", 0);
}

int constraint_call(struct job *j, const json_t *tools, const char *name, struct refusal *r)
{
    json_t *any = json_array(), *schema, *tool;
    size_t i;
    int rc;

    json_array_foreach(tools, i, tool)
    {
        const json_t *f = json_object_get(tool, "function");

        if (!name || strcmp(name, json_string_value(json_object_get(f, "name"))) == 0)
            json_array_append_new(any, call_schema(f, json_array_size(any)));
    }
    if (!json_array_size(any)) {
        json_decref(any);
        return refuse(r, 400, "invalid_value", "tool_choice",
                      name ? "'tool_choice' names '%.100s', which is none of 'tools'"
                           : "'tool_choice' demands a call, and there are no 'tools'",
                      name);
    }
    schema = json_pack("{s:o}", "anyOf", any);
    rc = make_schema(j, schema, "tools", r);
    json_decref(schema);
    return rc;
}
