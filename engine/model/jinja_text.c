/* What filters and methods of the Jinja subset do to text, and JSON of a value. Masks go along with the text they cover. One thread a rendering. */
#include "engine/model/jinja_data.h"

#include "engine/base/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <utf8proc.h>

struct value arguments_get(const struct arguments *args, int i, const char *name, struct value fallback)
{
    if (i < args->n)
        return args->v[i];
    for (int k = 0; name && k < args->n_named; k++)
        if (str_is(args->named[k].name, name))
            return args->named[k].v;
    return fallback;
}

struct str value_need_string(struct arena *a, struct value v, const char *what)
{
    if (v.type != V_STRING)
        jinja_fail(a, ERR_INPUT, "%s needs a string, not %s", what, value_kind(v));
    return v.str;
}

static bool blank_at(struct str s, size_t i, struct str chars)
{
    return chars.len ? memchr(chars.s, s.s[i], chars.len) != NULL : isspace((unsigned char)s.s[i]) != 0;
}

/* Python's strip of ASCII blanks, or of the given characters. */
struct str text_strip(struct arena *a, struct str s, struct str chars, bool left, bool right)
{
    size_t from = 0, to = s.len;

    jinja_charge(a, s.len);
    while (left && from < to && blank_at(s, from, chars))
        from++;
    while (right && to > from && blank_at(s, to - 1, chars))
        to--;
    return str_cut(s, from, to);
}

struct str text_change_case(struct arena *a, struct str s, enum letter_case how)
{
    struct builder b = {0};
    bool start = true;

    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp;
        bool valid, upper = how == CASE_UPPER || (start && how != CASE_LOWER);
        char out[4];

        n = utf8_decode_strict(s.s + i, s.len - i, &cp, &valid);
        if (valid) {
            uint32_t c = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_tolower((utf8proc_int32_t)cp));

            builder_text(a, &b, out, utf8_encode(c, out), s.mask ? s.mask[i] : 0);
        } else
            builder_put(a, &b, str_cut(s, i, i + n));
        start = how == CASE_TITLE ? !(cp > 127 || isalpha((int)cp)) : false;
    }
    return builder_str(&b);
}

struct str text_replace(struct arena *a, struct str s, struct str from, struct str to, int64_t most)
{
    struct builder b = {0};
    size_t i = 0;

    if (from.len == 0)
        jinja_fail(a, ERR_INPUT, "replace of an empty string");
    while (most != 0) {
        const char *hit = s.len - i >= from.len ? memmem(s.s + i, s.len - i, from.s, from.len) : NULL;

        if (!hit)
            break;
        builder_put(a, &b, str_cut(s, i, (size_t)(hit - s.s)));
        builder_put(a, &b, to);
        i = (size_t)(hit - s.s) + from.len;
        most--;
    }
    builder_put(a, &b, str_cut(s, i, s.len));
    return builder_str(&b);
}

struct value text_split(struct arena *a, struct str s, struct value by, int64_t most)
{
    struct value out = list_new(a);
    size_t i = 0;

    if (by.type != V_STRING) {                   /* runs of blanks */
        while (i < s.len) {
            size_t from;

            while (i < s.len && isspace((unsigned char)s.s[i]))
                i++;
            from = i;
            if (most == 0)
                i = s.len;
            while (i < s.len && !isspace((unsigned char)s.s[i]))
                i++;
            jinja_charge(a, i - from);
            if (i > from)
                list_put(a, out.list, value_str(str_cut(s, from, i)));
            most--;
        }
        return out;
    }
    if (by.str.len == 0)
        jinja_fail(a, ERR_INPUT, "split by an empty string");
    for (const char *hit; most != 0 && s.len - i >= by.str.len && (hit = memmem(s.s + i, s.len - i, by.str.s, by.str.len)); most--) {
        jinja_charge(a, (size_t)(hit - s.s) - i);
        list_put(a, out.list, value_str(str_cut(s, i, (size_t)(hit - s.s))));
        i = (size_t)(hit - s.s) + by.str.len;
    }
    list_put(a, out.list, value_str(str_cut(s, i, s.len)));
    return out;
}

struct str text_join(struct arena *a, struct list *l, struct str between)
{
    struct builder b = {0};

    for (size_t i = 0; i < l->n; i++) {
        if (i)
            builder_put(a, &b, between);
        builder_put(a, &b, value_text(a, l->v[i]));
    }
    return builder_str(&b);
}

struct str text_indent(struct arena *a, struct str s, int64_t width, bool first)
{
    struct builder b = {0};
    char blanks[64];

    width = width < 0 ? 0 : width > 64 ? 64 : width;
    memset(blanks, ' ', sizeof blanks);
    if (first)
        builder_text(a, &b, blanks, (size_t)width, 0);
    for (size_t i = 0, j; i < s.len; i = j) {
        for (j = i; j < s.len && s.s[j] != '\n'; j++)
            ;
        j += j < s.len;
        if (i && s.s[i] != '\n')                 /* empty lines stay empty */
            builder_text(a, &b, blanks, (size_t)width, 0);
        builder_put(a, &b, str_cut(s, i, j));
    }
    return builder_str(&b);
}

/* json.dumps(ensure_ascii=False), the way Hugging Face's tojson calls it. */
void value_json(struct arena *a, struct builder *b, struct value v, int by, int level)
{
    char line[1 + 256];
    int n = by * (level + 1) > 255 ? 255 : by * (level + 1);
    bool first = true;

    jinja_enter(a);
    memset(line, ' ', sizeof line);
    line[0] = '\n';
    if (v.type == V_STRING) {
        builder_text(a, b, "\"", 1, 0);
        for (size_t i = 0; i < v.str.len; i++) {
            unsigned char c = (unsigned char)v.str.s[i], m = v.str.mask ? v.str.mask[i] : 0;
            char text[8];
            const char *short_form = c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" :
                                     c == '\b' ? "\\b" : c == '\f' ? "\\f" : NULL;

            if (short_form)
                builder_text(a, b, short_form, 2, m);
            else if (c < 0x20) {
                snprintf(text, sizeof text, "\\u%04x", c);
                builder_text(a, b, text, 6, m);
            } else
                builder_text(a, b, (char *)&c, 1, m);
        }
        builder_text(a, b, "\"", 1, 0);
    } else if (v.type == V_LIST || v.type == V_DICT) {
        bool list = v.type == V_LIST;
        size_t count = list ? v.list->n : v.dict->n;

        builder_text(a, b, list ? "[" : "{", 1, 0);
        for (size_t i = 0; i < count; i++) {
            if (!first)
                builder_text(a, b, by ? "," : ", ", by ? 1 : 2, 0);
            first = false;
            if (by)
                builder_text(a, b, line, (size_t)n + 1, 0);
            if (!list) {
                value_json(a, b, value_str(v.dict->p[i].key), 0, 0);
                builder_text(a, b, ": ", 2, 0);
            }
            value_json(a, b, list ? v.list->v[i] : v.dict->p[i].value, by, level + 1);
        }
        if (by && count)
            builder_text(a, b, line, (size_t)(n - by) + 1, 0);
        builder_text(a, b, list ? "]" : "}", 1, 0);
    } else if (v.type == V_BOOL || v.type == V_NONE) {
        const char *word = v.type == V_NONE ? "null" : v.b ? "true" : "false";

        builder_text(a, b, word, strlen(word), 0);
    } else if (v.type == V_INT || v.type == V_FLOAT) {
        builder_put(a, b, value_text(a, v));
    } else
        jinja_fail(a, ERR_INPUT, "%s cannot be written as JSON", value_kind(v));
    jinja_leave(a);
}
