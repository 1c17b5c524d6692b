/* See schema_parts.h. Objects and arrays of a JSON schema: built from the last part to the first,
 * because what may follow a part depends on the later ones. */
#include "engine/base/mem.h"
#include "engine/text/grammar/schema_parts.h"

#include <stdlib.h>
#include <string.h>

int schema_array(struct schema *s, const json_t *o, const struct schema_place *p)
{
    const json_t *prefix = json_object_get(o, "prefixItems"), *items = json_object_get(o, "items");
    int min = schema_count(s, o, "minItems", 0, p), max = schema_count(s, o, "maxItems", -1, p);
    int n = (int)json_array_size(prefix), rest = -1, all;

    if (min == -2 || max == -2)
        return -1;
    if (prefix && !json_is_array(prefix))
        return schema_refuse(s, p, "prefixItems", "a list of schemas is possible");
    if (json_is_false(items))
        max = max < 0 || max > n ? n : max;
    if (max >= 0 && max < min)
        return schema_refuse(s, p, "minItems", "more than there may be");
    if (!json_is_false(items) && (max < 0 || max > n)) {
        int more_min = min > n ? min - n : 0, more_max = max < 0 ? -1 : max - n;

        if ((rest = schema_sub(s, items, p, "items")) < 0)
            return -1;
        if (n == 0) { /* one without a comma before it */
            int others = build_repeat(&s->build, seq(s, comma(s), rest),
                                      more_min > 0 ? more_min - 1 : 0,
                                      more_max < 0 ? -1 : more_max - 1);

            rest = seq(s, seq(s, rest, others), blank(s));
            rest = more_min ? rest : build_repeat(&s->build, rest, 0, 1);
        } else {
            rest = build_repeat(&s->build, seq(s, comma(s), rest), more_min, more_max);
        }
    }
    all = rest < 0 ? build_empty(&s->build) : rest;
    for (int i = max >= 0 && max < n ? max - 1 : n - 1; i >= 0; i--) {
        struct schema_place here = {p, "prefixItems"};
        char key[16];
        int one;

        snprintf(key, sizeof key, "%d", i);
        if ((one = schema_sub(s, json_array_get(prefix, (size_t)i), &here, key)) < 0)
            return -1;
        one = seq(s, i ? seq(s, comma(s), one) : one, all);
        one = i ? one : seq(s, one, blank(s));
        all = i < min ? one : build_repeat(&s->build, one, 0, 1);
    }
    all = seq(s, seq(s, text(s, "["), blank(s)), all);
    return seq(s, all, text(s, "]"));
}

/* ---- keys ---- */

/* An escape of a character that no plain name contains. */
static int escaped(struct schema *s)
{
    static const struct code_range letters[] = {{'"', '"'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                                                {'n', 'n'}, {'r', 'r'},   {'t', 't'}};

    return seq(s, text(s, "\\"), build_class(&s->build, letters, 7));
}

/* Keys other than the properties: by their common prefix with one. from..to of the sorted names
 * share the first `at` bytes. */
static int other_key(struct schema *s, const char **names, size_t from, size_t to, size_t at)
{
    int rest = build_repeat(&s->build, schema_character(s), 0, -1), out = -1;
    struct code_range free_chars[160];
    size_t n = 0, i = from;
    uint32_t next = ' ';
    bool ends = false;

    for (; i < to && !names[i][at]; i++)
        ends = true;
    if (!ends)
        out = text(s, "\"");
    for (; i < to;) {
        unsigned char c = (unsigned char)names[i][at];
        size_t last = i;

        while (last < to && (unsigned char)names[last][at] == c)
            last++;
        if (c > next)
            free_chars[n++] = (struct code_range){next, (uint32_t)c - 1};
        next = (uint32_t)c + 1;
        out = alt(s, out, seq(s, range(s, c, c), other_key(s, names, i, last, at + 1)));
        i = last;
    }
    free_chars[n++] = (struct code_range){next, 0x7e};
    for (size_t k = 0; k < n; k++) /* neither quotes nor backslashes */
        for (uint32_t lo = free_chars[k].lo; lo <= free_chars[k].hi;) {
            uint32_t hi = lo;

            if (lo == '"' || lo == '\\') {
                lo++;
                continue;
            }
            while (hi < free_chars[k].hi && hi + 1 != '"' && hi + 1 != '\\')
                hi++;
            out = alt(s, out, seq(s, range(s, lo, hi), seq(s, rest, text(s, "\""))));
            lo = hi + 1;
        }
    rest = seq(s, rest, text(s, "\""));
    out = alt(s, out, seq(s, escaped(s), rest)); /* no name has one */
    return alt(s, out, seq(s, range(s, 0x80, 0x10ffff), rest));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int free_key(struct schema *s, const json_t *properties, const struct schema_place *p)
{
    size_t n = json_object_size(properties), i = 0;
    const char **names, *name;
    json_t *v;
    int out;

    if (!n)
        return build_call(&s->build, s->string);
    if (!(names = mem_alloc(n, sizeof *names))) {
        s->build.failed = true;
        return -1;
    }
    json_object_foreach((json_t *)properties, name, v)
    {
        for (const char *c = name; *c; c++)
            if ((unsigned char)*c < ' ' || (unsigned char)*c > 0x7e || *c == '"' || *c == '\\') {
                mem_free(names);
                return schema_refuse(
                    s, p, "additionalProperties",
                    "beside names that are not plain ASCII, false alone is possible");
            }
        names[i++] = name;
    }
    qsort(names, n, sizeof *names, by_name);
    out = seq(s, text(s, "\""), other_key(s, names, 0, n, 0));
    mem_free(names);
    return out;
}

static bool is_required(const json_t *required, const char *name)
{
    const json_t *v;
    size_t i;

    json_array_foreach(required, i, v) if (strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static int check_required(struct schema *s, const json_t *required, const json_t *properties,
                          const struct schema_place *p)
{
    const json_t *v;
    size_t i;

    if (required && !json_is_array(required))
        return schema_refuse(s, p, "required", "a list of names is possible");
    json_array_foreach(required, i, v)
    {
        if (!json_is_string(v))
            return schema_refuse(s, p, "required", "a list of names is possible");
        if (!json_object_get(properties, json_string_value(v)))
            return schema_refuse(s, p, "required", "it names what is no property");
    }
    return 0;
}

/* What may follow, from the last property to the first, after a member and at the start: two rules
 * per property, so that a long object is a chain. */
int schema_object(struct schema *s, const json_t *o, const struct schema_place *p)
{
    const json_t *properties = json_object_get(o, "properties");
    const json_t *required = json_object_get(o, "required");
    const json_t *other = json_object_get(o, "additionalProperties");
    int after = blank(s), first = build_empty(&s->build);
    size_t n = json_object_size(properties), i = 0;
    struct schema_place here = {p, "properties"};
    const char **names, *name;
    json_t *v;

    if (properties && !json_is_object(properties))
        return schema_refuse(s, p, "properties", "an object of schemas is possible");
    if (check_required(s, required, properties, p) < 0)
        return -1;
    if (!json_is_false(other)) {
        int key = free_key(s, properties, p),
            item = schema_sub(s, other, p, "additionalProperties"), more;

        if (key < 0 || item < 0)
            return -1;
        item = seq(s, seq(s, key, colon(s)), item);
        more = build_repeat(&s->build, seq(s, comma(s), item), 0, -1);
        after = seq(s, more, blank(s));
        first = build_repeat(&s->build, seq(s, item, after), 0, 1);
    }
    if (!(names = mem_alloc(n + 1, sizeof *names))) {
        s->build.failed = true;
        return -1;
    }
    json_object_foreach((json_t *)properties, name, v) names[i++] = name;
    while (i-- > 0) {
        int after_rule = build_rule(&s->build), first_rule = build_rule(&s->build), item, key;
        json_t *quoted = json_string(names[i]);

        item = schema_sub(s, json_object_get(properties, names[i]), &here, names[i]);
        key = quoted ? schema_literal(s, quoted) : -1;
        json_decref(quoted);
        if (item < 0 || key < 0 || first_rule < 0) {
            s->build.failed |= item >= 0;
            mem_free(names);
            return -1;
        }
        build_rule_set(&s->build, after_rule, after);
        build_rule_set(&s->build, first_rule, first);
        item = seq(s, seq(s, key, colon(s)), item);
        item = seq(s, item, build_call(&s->build, after_rule));
        after = seq(s, comma(s), item);
        if (!is_required(required, names[i])) {
            after = alt(s, after, build_call(&s->build, after_rule));
            first = alt(s, item, build_call(&s->build, first_rule));
        } else {
            first = item;
        }
    }
    mem_free(names);
    first = seq(s, seq(s, text(s, "{"), blank(s)), first);
    return seq(s, first, text(s, "}"));
}
