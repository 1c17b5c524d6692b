/* A JSON schema as a grammar of the allowed values, written with no blanks, or one, or a newline
 * and up to 32 blanks between their parts. Properties come in the order of the schema. An
 * unsupported keyword is an error, since an answer that only seems to follow the schema is worse
 * than none.
 *
 * Supported: type (also a list), enum, const, properties, required, additionalProperties, items,
 * prefixItems, minItems, maxItems, anyOf, $ref into the document (also to itself), $defs,
 * definitions, minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum and multipleOf; titles, descriptions and the like do not affect values. */
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/grammar/schema_parts.h"

#include <stdlib.h>
#include <string.h>

#define POINTER_MAX 300

/* ---- errors ---- */

static void write_pointer(const struct schema_place *p, char *out, size_t size)
{
    size_t n;

    if (!p) {
        snprintf(out, size, "#");
        return;
    }
    write_pointer(p->above, out, size);
    n = strlen(out);
    snprintf(out + n, size - n, "/%s", p->key);
}

int schema_refuse(struct schema *s, const struct schema_place *p, const char *key, const char *why)
{
    struct schema_place here = {p, key};
    char pointer[POINTER_MAX];

    if (!s->e->code) {
        write_pointer(key ? &here : p, pointer, sizeof pointer);
        error_set(s->e, ERR_INPUT, "JSON schema, %s: %s", pointer, why);
    }
    return -1;
}

/* ---- elements ---- */

int schema_count(struct schema *s, const json_t *o, const char *key, int none,
                 const struct schema_place *p)
{
    const json_t *v = json_object_get(o, key);

    if (!v)
        return none;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > GRAMMAR_NODES)
        return schema_refuse(s, p, key, "a whole number from 0 (and not too large) is possible"),
               -2;
    return (int)json_integer_value(v);
}

int schema_any(struct schema *s)
{
    return build_call(&s->build, s->any);
}

int schema_sub(struct schema *s, const json_t *v, const struct schema_place *p, const char *key)
{
    struct schema_place here = {p, key};

    return v ? schema_value(s, v, &here) : schema_any(s);
}

/* ---- combinations ---- */

enum { OF_ALL, OF_OBJECT, OF_ARRAY, OF_STRING, OF_NUMBER, OF_NOTHING };

static const struct {
    const char *name;
    int of;
} keywords[] = {
    {"type", OF_ALL},
    {"enum", OF_ALL},
    {"const", OF_ALL},
    {"anyOf", OF_ALL},
    {"$ref", OF_ALL},
    {"properties", OF_OBJECT},
    {"required", OF_OBJECT},
    {"additionalProperties", OF_OBJECT},
    {"items", OF_ARRAY},
    {"prefixItems", OF_ARRAY},
    {"minItems", OF_ARRAY},
    {"maxItems", OF_ARRAY},
    {"minLength", OF_STRING},
    {"maxLength", OF_STRING},
    {"pattern", OF_STRING},
    {"format", OF_STRING},
    {"minimum", OF_NUMBER},
    {"maximum", OF_NUMBER},
    {"exclusiveMinimum", OF_NUMBER},
    {"exclusiveMaximum", OF_NUMBER},
    {"multipleOf", OF_NUMBER},
    {"$schema", OF_NOTHING},
    {"$id", OF_NOTHING},
    {"$defs", OF_NOTHING},
    {"definitions", OF_NOTHING},
    {"$comment", OF_NOTHING},
    {"title", OF_NOTHING},
    {"description", OF_NOTHING},
    {"default", OF_NOTHING},
    {"examples", OF_NOTHING},
    {"deprecated", OF_NOTHING},
    {"readOnly", OF_NOTHING},
    {"writeOnly", OF_NOTHING},
};

/* Checks that every keyword is supported, and that nothing stands beside `alone` (enum, const,
 * anyOf or $ref; NULL: none of them is there) except annotations and, beside enum and const, type.
 */
static int check_keywords(struct schema *s, const json_t *o, const char *alone,
                          const struct schema_place *p)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        size_t i = 0;

        while (i < sizeof keywords / sizeof *keywords && strcmp(keywords[i].name, key) != 0)
            i++;
        if (i == sizeof keywords / sizeof *keywords)
            return schema_refuse(s, p, key, "this keyword is not supported");
        if (alone && keywords[i].of != OF_NOTHING && strcmp(key, alone) != 0 &&
            !(strcmp(key, "type") == 0 && strcmp(alone, "anyOf") != 0 &&
              strcmp(alone, "$ref") != 0))
            return schema_refuse(
                s, p, key, "not supported beside what stands alone: enum, const, anyOf, $ref");
    }
    return 0;
}

static bool has_type(const char *type, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return strcmp(type, "object") == 0;
    case JSON_ARRAY: return strcmp(type, "array") == 0;
    case JSON_STRING: return strcmp(type, "string") == 0;
    case JSON_INTEGER: return strcmp(type, "integer") == 0 || strcmp(type, "number") == 0;
    case JSON_REAL: return strcmp(type, "number") == 0;
    case JSON_TRUE:
    case JSON_FALSE: return strcmp(type, "boolean") == 0;
    default: return strcmp(type, "null") == 0;
    }
}

/* Whether a value has one of the types given besides it. */
static bool typed(const json_t *type, const json_t *v)
{
    const json_t *one;
    size_t i;

    if (!type)
        return true;
    if (json_is_string(type))
        return has_type(json_string_value(type), v);
    json_array_foreach(type, i, one) if (json_is_string(one) &&
                                         has_type(json_string_value(one), v)) return true;
    return false;
}

static int any_of(struct schema *s, const json_t *list, const json_t *type, bool literals,
                  const char *key, const struct schema_place *p)
{
    struct schema_place here = {p, key};
    const json_t *v;
    int out = -1, one;
    size_t i;

    if (!json_is_array(list) || !json_array_size(list))
        return schema_refuse(s, p, key, "a list that is not empty is possible");
    json_array_foreach(list, i, v)
    {
        char number_text[24];

        snprintf(number_text, sizeof number_text, "%zu", i);
        if (literals && !typed(type, v))
            continue;
        if ((one = literals ? schema_literal(s, v) : schema_sub(s, v, &here, number_text)) < 0)
            return -1;
        out = alt(s, out, one);
    }
    return out < 0 ? schema_refuse(s, p, key, "none of its values has the type") : out;
}

static int reference(struct schema *s, const json_t *v, const struct schema_place *p)
{
    const char *at = json_string_value(v);
    const json_t *to = s->root;
    int i = 0, body;

    if (!at || at[0] != '#' || (at[1] && at[1] != '/'))
        return schema_refuse(s, p, "$ref", "a reference into this document (#/…) is possible");
    for (at++; *at && to;) {
        char key[200];
        size_t n = 0;

        for (at++; *at && *at != '/' && n + 1 < sizeof key; at++)
            if (at[0] == '~' && (at[1] == '0' || at[1] == '1'))
                key[n++] = *++at == '0' ? '~' : '/';
            else
                key[n++] = *at;
        key[n] = 0;
        to = json_is_array(to) ? json_array_get(to, strtoul(key, NULL, 10))
                               : json_object_get(to, key);
    }
    if (!to)
        return schema_refuse(s, p, "$ref", "it leads nowhere");
    while (i < s->n_refs && s->refs[i].to != to)
        i++;
    if (i == SCHEMA_REFS_MAX)
        return schema_refuse(s, p, "$ref", "too many references");
    if (i == s->n_refs) {
        struct schema_place here = {p, "$ref"};

        s->refs[s->n_refs].to = to;
        s->refs[s->n_refs++].rule = build_rule(&s->build);
        if ((body = schema_value(s, to, &here)) < 0)
            return -1;
        build_rule_set(&s->build, s->refs[i].rule, body);
    }
    return build_call(&s->build, s->refs[i].rule);
}

static int of_type(struct schema *s, const json_t *o, const char *type,
                   const struct schema_place *p)
{
    if (strcmp(type, "object") == 0)
        return schema_object(s, o, p);
    if (strcmp(type, "array") == 0)
        return schema_array(s, o, p);
    if (strcmp(type, "string") == 0)
        return schema_string(s, o, p);
    if (strcmp(type, "integer") == 0)
        return schema_integer(s, o, p);
    if (strcmp(type, "number") == 0)
        return schema_number(s, o, p);
    if (strcmp(type, "boolean") == 0)
        return alt(s, text(s, "true"), text(s, "false"));
    if (strcmp(type, "null") == 0)
        return text(s, "null");
    return schema_refuse(s, p, "type",
                         "object, array, string, integer, number, boolean and null are possible");
}

static int of_types(struct schema *s, const json_t *o, const struct schema_place *p)
{
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    const json_t *type = json_object_get(o, "type"), *v;
    int out = -1, one;
    size_t i;

    if (json_is_string(type))
        return of_type(s, o, json_string_value(type), p);
    if (type && (!json_is_array(type) || !json_array_size(type)))
        return schema_refuse(s, p, "type", "a name or a list of names is possible");
    json_array_foreach(type, i, v)
    {
        if (!json_is_string(v))
            return schema_refuse(s, p, "type", "a name or a list of names is possible");
        if ((one = of_type(s, o, json_string_value(v), p)) < 0)
            return -1;
        out = alt(s, out, one);
    }
    for (i = 0; !type && i < sizeof all / sizeof *all; i++) {
        if ((one = of_type(s, o, all[i], p)) < 0)
            return -1;
        out = alt(s, out, one);
    }
    return out;
}

/* Whether it does not restrict values at all. */
static bool says_nothing(const json_t *o)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
            if (strcmp(keywords[i].name, key) == 0 && keywords[i].of != OF_NOTHING)
                return false;
    }
    return true;
}

static int keyed(struct schema *s, const json_t *o, const struct schema_place *p)
{
    static const char *const alone[] = {"$ref", "const", "enum", "anyOf"};
    const json_t *type = json_object_get(o, "type"), *v;
    const char *key = NULL;

    for (size_t i = 0; i < 4 && !key; i++)
        if (json_object_get(o, alone[i]))
            key = alone[i];
    if (check_keywords(s, o, key, p) < 0)
        return -1;
    if (!key)
        return says_nothing(o) ? schema_any(s) : of_types(s, o, p);
    v = json_object_get(o, key);
    if (strcmp(key, "$ref") == 0)
        return reference(s, v, p);
    if (strcmp(key, "const") == 0)
        return typed(type, v) ? schema_literal(s, v)
                              : schema_refuse(s, p, key, "it is not of the type");
    return any_of(s, v, type, strcmp(key, "enum") == 0, key, p);
}

int schema_value(struct schema *s, const json_t *v, const struct schema_place *p)
{
    int out;

    if (json_is_true(v))
        return schema_any(s);
    if (json_is_false(v))
        return schema_refuse(s, p, NULL, "false allows nothing");
    if (!json_is_object(v))
        return schema_refuse(s, p, NULL, "a schema is an object, true or false");
    if (++s->depth > GRAMMAR_DEPTH)
        return schema_refuse(s, p, NULL, "nested too deeply");
    out = keyed(s, v, p);
    s->depth--;
    return out;
}

static int make_blank(struct schema *s)
{
    int many = build_repeat(&s->build, alt(s, range(s, ' ', ' '), range(s, '\t', '\t')), 0, 32);

    return build_repeat(&s->build, alt(s, text(s, " "), seq(s, text(s, "\n"), many)), 0, 1);
}

/* Rules that every schema may need: the root, any value, a string, blanks. */
static int begin(struct schema *s)
{
    static const char any[] = "{}";
    json_t *empty = json_loads(any, 0, NULL);
    int root = build_rule(&s->build), object_rule, array_rule, all;

    s->any = build_rule(&s->build);
    s->string = build_rule(&s->build);
    s->blank = build_rule(&s->build);
    build_rule_set(&s->build, s->blank, make_blank(s));
    build_rule_set(&s->build, s->string, schema_characters(s, 0, -1));
    object_rule = empty ? schema_object(s, empty, NULL) : -1;
    array_rule = empty ? schema_array(s, empty, NULL) : -1;
    json_decref(empty);
    if (object_rule < 0 || array_rule < 0)
        return -1;
    all = alt(s, object_rule, array_rule);
    all = alt(s, all, build_call(&s->build, s->string));
    all = alt(s, all, schema_any_number(s));
    all = alt(s, all, alt(s, alt(s, text(s, "true"), text(s, "false")), text(s, "null")));
    build_rule_set(&s->build, s->any, all);
    return root;
}

int grammar_from_schema(struct grammar **out, const char *json, size_t n, struct error *e)
{
    struct error own = {0};
    struct schema *s = mem_alloc(1, sizeof *s);
    int rc = 0, body = -1, root;
    json_t *o = NULL;

    *out = NULL;
    e = e ? e : &own;
    *e = (struct error){0};
    if (!s)
        return error_set(e, ERR_MEMORY, "out of memory for the schema");
    s->e = e;
    if (n > GRAMMAR_BYTES)
        rc = error_set(e, ERR_INPUT, "JSON schema: longer than %zu bytes", GRAMMAR_BYTES);
    else if (!(o = json_read(json, n, "JSON schema", e)))
        rc = e->code = ERR_INPUT;
    s->root = o;
    if (rc == 0 && (root = begin(s)) >= 0 && (body = schema_value(s, o, NULL)) >= 0)
        build_rule_set(&s->build, root, body);
    if (rc == 0 && body < 0 && e->code)
        rc = e->code;
    else if (rc == 0 && body < 0 && !s->build.failed)
        s->build.failed = true;
    if (rc == 0)
        rc = grammar_build_end(&s->build, NULL, NULL, out, e);
    grammar_build_release(&s->build);
    json_decref(o);
    mem_free(s);
    return rc;
}
