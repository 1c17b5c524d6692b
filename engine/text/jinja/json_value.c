/* Values from JSON: the caller's variables for a template besides the messages (tools, switches).
 * One thread per rendering. */
#include "engine/text/jinja/data.h"

static struct str text(struct arena *a, const char *s, size_t len, unsigned char mask)
{
    unsigned char *bytes = mask ? jinja_alloc(a, len + 1, 1) : NULL;

    if (mask)
        memset(bytes, mask, len);
    return (struct str){s, bytes, len, false};
}

static struct value object_value(struct arena *a, const json_t *json, unsigned char mask)
{
    struct value v = dict_new(a);

    /* jansson iterates over an unmodified object without writing to it, whatever its types say */
    for (void *at = json_object_iter((json_t *)(uintptr_t)json); at;
         at = json_object_iter_next((json_t *)(uintptr_t)json, at)) {
        const char *key = json_object_iter_key(at);

        dict_put(a, v.dict, text(a, key, strlen(key), mask),
                 value_from_json(a, json_object_iter_value(at), mask));
    }
    return v;
}

static struct value array_value(struct arena *a, const json_t *json, unsigned char mask)
{
    struct value v = list_new(a);

    for (size_t i = 0; i < json_array_size(json); i++)
        list_put(a, v.list, value_from_json(a, json_array_get(json, i), mask));
    return v;
}

struct value value_from_json(struct arena *a, const json_t *json, unsigned char mask)
{
    struct value v;

    if (!json)
        return (struct value){.type = V_UNDEFINED};
    jinja_enter(a);
    switch (json_typeof(json)) {
    case JSON_OBJECT: v = object_value(a, json, mask); break;
    case JSON_ARRAY: v = array_value(a, json, mask); break;
    case JSON_STRING:
        v = value_str(text(a, json_string_value(json), json_string_length(json), mask));
        break;
    case JSON_INTEGER: v = value_int(json_integer_value(json)); break;
    case JSON_REAL: v = (struct value){.type = V_FLOAT, .d = json_real_value(json)}; break;
    case JSON_TRUE:
    case JSON_FALSE: v = value_bool(json_is_true(json)); break;
    default: v = value_none(); break;
    }
    jinja_leave(a);
    return v;
}
