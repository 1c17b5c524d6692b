/* See call_schema.h. */
#include "engine/text/call_schema.h"

#include <string.h>

#define DEPTH_MAX 16

static unsigned word_type(const char *word)
{
    static const struct {
        const char *word;
        unsigned type;
    } words[] = {{"string", CALL_STRING},   {"integer", CALL_INTEGER}, {"number", CALL_NUMBER},
                 {"boolean", CALL_BOOLEAN}, {"object", CALL_OBJECT},   {"array", CALL_ARRAY},
                 {"null", CALL_NULL}};

    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].type;
    return 0;
}

static unsigned value_type(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING: return CALL_STRING;
    case JSON_INTEGER: return CALL_INTEGER;
    case JSON_REAL: return CALL_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return CALL_BOOLEAN;
    case JSON_OBJECT: return CALL_OBJECT;
    case JSON_ARRAY: return CALL_ARRAY;
    default: return CALL_NULL;
    }
}

/* Resolves a $ref such as "#/$defs/x"; NULL: there is no such place. */
static const json_t *referred(const json_t *root, const char *to)
{
    const json_t *at = root;

    if (*to++ != '#')
        return NULL;
    while (at && *to == '/') {
        size_t n = strcspn(++to, "/");

        at = json_object_getn(at, to, n);
        to += n;
    }
    return at;
}

static unsigned types_of(const json_t *schema, const json_t *root, int depth);

static unsigned types_of_all(const json_t *list, const json_t *root, int depth)
{
    unsigned types = 0, its;
    const json_t *each;
    size_t i;

    json_array_foreach(list, i, each)
    {
        its = types_of(each, root, depth);
        if (!its)
            return 0;
        types |= its;
    }
    return types;
}

static unsigned types_of(const json_t *schema, const json_t *root, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum"),
                 *only = json_object_get(schema, "const"), *each;
    const char *to = json_string_value(json_object_get(schema, "$ref"));
    unsigned types = word_type(json_string_value(type));
    size_t i;

    if (depth > DEPTH_MAX)
        return 0;
    if (to)
        return types_of(referred(root, to), root, depth + 1);
    json_array_foreach(type, i, each) types |= word_type(json_string_value(each));
    if (!types)
        json_array_foreach(list, i, each) types |= value_type(each);
    if (!types && only)
        types = value_type(only);
    for (i = 0; i < 2 && !types; i++)
        types = types_of_all(json_object_get(schema, unions[i]), root, depth + 1);
    if (!types)
        json_array_foreach(json_object_get(schema, "allOf"), i, each)
            types |= types_of(each, root, depth + 1);
    if (!types && json_object_get(schema, "properties"))
        types = CALL_OBJECT;
    if (!types && json_object_get(schema, "items"))
        types = CALL_ARRAY;
    return types && json_is_true(json_object_get(schema, "nullable")) ? types | CALL_NULL : types;
}

unsigned call_schema_types(const json_t *parameters, const char *name, size_t len)
{
    const json_t *its = json_object_getn(json_object_get(parameters, "properties"), name, len);

    if (!its)
        its = json_object_get(parameters, "additionalProperties");
    return types_of(its, parameters, 0);
}

int call_schema_takes(unsigned types, const json_t *value)
{
    unsigned type = value_type(value);

    return (types & type) || (type == CALL_INTEGER && (types & CALL_NUMBER));
}
