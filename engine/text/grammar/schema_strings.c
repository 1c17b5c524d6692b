/* See schema_parts.h. The strings of a JSON schema, between their quotes and with JSON's
 * escapes. */
#include "engine/text/grammar/pattern.h"
#include "engine/text/grammar/schema_parts.h"

/* Four hexadecimal digits of which the first two are these. */
static int hex(struct schema *s, const struct code_range *first, size_t n,
               const struct code_range *second, size_t n_second)
{
    static const struct code_range any[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    int two = build_repeat(&s->build, build_class(&s->build, any, 3), 2, 2);

    return seq(
        s, seq(s, build_class(&s->build, first, n), build_class(&s->build, second, n_second)), two);
}

/* A character code after the backslash: one outside the surrogates, or a pair of them, since a lone
 * one is no character and JSON parsers refuse it. */
static int code(struct schema *s)
{
    static const struct code_range others[] = {
        {'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const struct code_range any[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    static const struct code_range d[] = {{'D', 'D'}, {'d', 'd'}}, low[] = {{'0', '7'}};
    static const struct code_range high[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
    static const struct code_range second[] = {{'C', 'F'}, {'c', 'f'}};
    int plain = alt(s, hex(s, others, 5, any, 3), hex(s, d, 2, low, 1));
    int pair = seq(s, seq(s, hex(s, d, 2, high, 3), text(s, "\\u")), hex(s, d, 2, second, 2));

    return seq(s, text(s, "u"), alt(s, plain, pair));
}

int schema_character(struct schema *s)
{
    static const struct code_range plain[] = {
        {' ', '!'}, {'#', '['}, {']', 0x7e}, {0x80, 0x10ffff}};
    static const struct code_range letters[] = {{'"', '"'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                                                {'n', 'n'}, {'r', 'r'},   {'t', 't'}};

    return alt(s, build_class(&s->build, plain, 4),
               seq(s, text(s, "\\"), alt(s, build_class(&s->build, letters, 7), code(s))));
}

int schema_characters(struct schema *s, int min, int max)
{
    int all = build_repeat(&s->build, schema_character(s), min, max);

    return seq(s, seq(s, text(s, "\""), all), text(s, "\""));
}

/* ---- keywords ---- */

static int matching(struct schema *s, const char *pattern, const char *key,
                    const struct schema_place *p)
{
    const char *why;
    int body = pattern_build(&s->build, pattern, &why);

    if (why)
        return schema_refuse(s, p, key, why);
    return seq(s, seq(s, text(s, "\""), body), text(s, "\""));
}

/* "pattern" or "format"; each must be alone, for their intersection is not computed. */
static int shaped(struct schema *s, const json_t *o, const struct schema_place *p)
{
    const json_t *pattern = json_object_get(o, "pattern"), *format = json_object_get(o, "format");
    const char *key = pattern ? "pattern" : "format", *name;

    if (!json_is_string(pattern ? pattern : format))
        return schema_refuse(s, p, key, "a text is possible");
    if ((pattern && format) || json_object_get(o, "minLength") || json_object_get(o, "maxLength"))
        return schema_refuse(s, p, key,
                             "not together with minLength, maxLength, pattern or format");
    if (pattern)
        return matching(s, json_string_value(pattern), key, p);
    name = pattern_of_format(json_string_value(format));
    return name ? matching(s, name, key, p)
                : schema_refuse(s, p, key,
                                "date, time, date-time, duration, email, hostname, ipv4, ipv6 "
                                "and uuid are possible");
}

int schema_string(struct schema *s, const json_t *o, const struct schema_place *p)
{
    int min = schema_count(s, o, "minLength", 0, p), max = schema_count(s, o, "maxLength", -1, p);

    if (min == -2 || max == -2)
        return -1;
    if (json_object_get(o, "pattern") || json_object_get(o, "format"))
        return shaped(s, o, p);
    if (max >= 0 && max < min)
        return schema_refuse(s, p, "maxLength", "less than minLength");
    return min == 0 && max < 0 ? build_call(&s->build, s->string) : schema_characters(s, min, max);
}
