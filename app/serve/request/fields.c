/* See fields.h. */
#include "app/serve/request/fields.h"

#include <stdint.h>

const json_t *field_get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);

    return json_is_null(v) ? NULL : v;
}

static int wrong_type(struct refusal *r, const struct field *f, const char *wanted)
{
    return refuse(r, 400, "invalid_type", f->name, "'%s' must be %s", f->name, wanted);
}

static int check_range(struct refusal *r, const struct field *f, double v)
{
    if (v >= f->least && v <= f->most)
        return 0;
    return refuse(r, 400, "invalid_value", f->name, "'%s' is %.10g; %.10g to %.10g is possible",
                  f->name, v, f->least, f->most);
}

static int read_field(const json_t *v, const struct field *f, void *at, struct refusal *r)
{
    switch (f->type) {
    case FIELD_BOOL:
        if (!json_is_boolean(v))
            return wrong_type(r, f, "true or false");
        *(bool *)at = json_is_true(v);
        return 0;
    case FIELD_INT:
        if (!json_is_integer(v))
            return wrong_type(r, f, "a whole number");
        if (check_range(r, f, (double)json_integer_value(v)) < 0)
            return -1;
        *(int64_t *)at = json_integer_value(v);
        return 0;
    case FIELD_REAL:
        if (!json_is_number(v))
            return wrong_type(r, f, "a number");
        if (check_range(r, f, json_number_value(v)) < 0)
            return -1;
        *(double *)at = json_number_value(v);
        return 0;
    case FIELD_TEXT:
        if (!json_is_string(v))
            return wrong_type(r, f, "a string");
        *(const char **)at = json_string_value(v);
        return 0;
    }
    return 0;
}

int fields_read(const json_t *o, const struct field *table, size_t n, void *out, struct refusal *r)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = field_get(o, table[i].name);

        if (v && read_field(v, &table[i], (char *)out + table[i].offset, r) < 0)
            return -1;
    }
    return 0;
}
