/* Text functions of the Jinja subset's filters and methods, and JSON of a value. Masks are kept
 * with the text they cover. One thread per rendering. */
#include "engine/text/jinja/data.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <utf8proc.h>

struct value arguments_get(const struct arguments *args, int i, const char *name,
                           struct value fallback)
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

int64_t value_need_integer(struct arena *a, struct value v, int64_t fallback, const char *what)
{
    if (v.type == V_UNDEFINED || v.type == V_NONE)
        return fallback;
    if (v.type != V_INT && v.type != V_BOOL)
        jinja_fail(a, ERR_INPUT, "%s is %s, not an integer", what, value_kind(v));
    return v.type == V_INT ? v.i : v.b;
}

/* Blanks by Python's str.isspace(). */
bool text_blank(uint32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool text_letter(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

/* Python's isalpha() and the like: at least one character, and all of them. */
bool text_all(struct arena *a, struct str s, bool (*is)(uint32_t code_point))
{
    bool all = s.len > 0;
    uint32_t c;

    jinja_charge(a, 4 * s.len);
    for (size_t i = 0; i < s.len && all;) {
        i += utf8_decode(s.s + i, s.len - i, &c);
        all = is(c);
    }
    return all;
}

/* Bytes of the last code point; a malformed one is one byte. */
static size_t last_length(struct str s)
{
    size_t n = 1;

    while (n < 4 && n < s.len && ((unsigned char)s.s[s.len - n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* Whether this character is among chars (none: a blank). */
static bool stripped(struct arena *a, struct str one, struct str chars)
{
    uint32_t c;

    jinja_charge(a, chars.len);
    if (chars.len)
        return memmem(chars.s, chars.len, one.s, one.len) != NULL;
    utf8_decode(one.s, one.len, &c);
    return text_blank(c);
}

/* Python's strip, by code points: of blanks, or of the given characters. */
struct str text_strip(struct arena *a, struct str s, struct value chars, bool left, bool right)
{
    struct str set = chars.type == V_UNDEFINED || chars.type == V_NONE
                         ? str_of("")
                         : value_need_string(a, chars, "strip");
    size_t n;
    uint32_t c;

    if (chars.type == V_STRING && !set.len)
        return s;
    while (left && s.len) {
        n = utf8_decode(s.s, s.len, &c);
        if (!stripped(a, str_cut(s, 0, n), set))
            break;
        s = str_cut(s, n, s.len);
    }
    while (right && s.len) {
        n = last_length(s);
        if (!stripped(a, str_cut(s, s.len - n, s.len), set))
            break;
        s = str_cut(s, 0, s.len - n);
    }
    return s;
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
            uint32_t c = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp)
                                          : utf8proc_tolower((utf8proc_int32_t)cp));

            if (upper && cp == 0xdf) /* one sharp s, two letters */
                builder_text(a, &b, start && how != CASE_UPPER ? "Ss" : "SS", 2,
                             s.mask ? s.mask[i] : 0);
            else
                builder_text(a, &b, out, utf8_encode(c, out), s.mask ? s.mask[i] : 0);
        } else
            builder_put(a, &b, str_cut(s, i, i + n));
        start = how == CASE_TITLE
                    ? !text_letter(cp)
                    : how == CASE_WORDS &&
                          (text_blank(cp) || (cp && cp < 128 && strchr("-({[<", (int)cp)));
    }
    return builder_str(&b);
}

/* As in Python: an empty `from` matches before every character and at the end. */
struct str text_replace(struct arena *a, struct str s, struct str from, struct str to, int64_t most)
{
    struct builder b = {0};
    size_t i = 0, next;
    uint32_t c;

    if (most < 0)
        most = INT64_MAX;
    for (; most > 0 && from.len == 0; most--) {
        next = i + (i < s.len ? utf8_decode(s.s + i, s.len - i, &c) : 0);
        builder_put(a, &b, to);
        builder_put(a, &b, str_cut(s, i, next));
        if (i == next)
            return builder_str(&b);
        i = next;
    }
    for (; most > 0; most--) {
        const char *hit = s.len - i >= from.len ? memmem(s.s + i, s.len - i, from.s, from.len)
                                                : NULL;

        jinja_charge(a, from.len);
        if (!hit)
            break;
        builder_put(a, &b, str_cut(s, i, (size_t)(hit - s.s)));
        builder_put(a, &b, to);
        i = (size_t)(hit - s.s) + from.len;
    }
    builder_put(a, &b, str_cut(s, i, s.len));
    return builder_str(&b);
}

static void put_part(struct arena *a, struct list *l, struct str s, size_t from, size_t to)
{
    jinja_charge(a, to - from);
    list_put(a, l, value_str(str_cut(s, from, to)));
}

static bool blank_at(struct str s, size_t i, size_t *next)
{
    uint32_t c;

    *next = i + utf8_decode(s.s + i, s.len - i, &c);
    return text_blank(c);
}

static void split_blanks(struct arena *a, struct list *out, struct str s, int64_t most)
{
    size_t i = 0, next, from;

    while (i < s.len) {
        while (i < s.len && blank_at(s, i, &next))
            i = next;
        if (i == s.len)
            return;
        from = i;
        while (i < s.len && !blank_at(s, i, &next))
            i = next;
        if (most-- == 0) { /* the rest unchanged */
            put_part(a, out, s, from, s.len);
            return;
        }
        put_part(a, out, s, from, i);
    }
}

static void split_blanks_right(struct arena *a, struct list *out, struct str s, int64_t most)
{
    struct value none = value_none();

    for (s = text_strip(a, s, none, false, true); s.len; s = text_strip(a, s, none, false, true)) {
        struct str rest = s;

        if (most-- == 0) {
            put_part(a, out, s, 0, s.len);
            return;
        }
        while (rest.len &&
               !stripped(a, str_cut(rest, rest.len - last_length(rest), rest.len), str_of("")))
            rest = str_cut(rest, 0, rest.len - last_length(rest));
        put_part(a, out, s, rest.len, s.len);
        s = rest;
    }
}

static const char *last_hit(struct arena *a, struct str s, struct str what)
{
    for (size_t at = s.len; at >= what.len; at--) {
        jinja_charge(a, what.len);
        if (memcmp(s.s + at - what.len, what.s, what.len) == 0)
            return s.s + at - what.len;
        if (at == what.len)
            break;
    }
    return NULL;
}

static void reverse_list(struct list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct value v = l->v[i];

        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

struct value text_split(struct arena *a, struct str s, struct value by, int64_t most,
                        bool from_right)
{
    struct value out = list_new(a);
    struct str what;

    if (most < 0)
        most = INT64_MAX;
    jinja_charge(a, s.len);
    if (by.type == V_UNDEFINED || by.type == V_NONE) {
        if (!from_right)
            split_blanks(a, out.list, s, most);
        else
            split_blanks_right(a, out.list, s, most);
    } else {
        what = value_need_string(a, by, "split");
        if (what.len == 0)
            jinja_fail(a, ERR_INPUT, "split by an empty string");
        for (const char *hit; most > 0 && s.len >= what.len; most--) {
            hit = from_right ? last_hit(a, s, what) : memmem(s.s, s.len, what.s, what.len);
            jinja_charge(a, what.len);
            if (!hit)
                break;
            if (from_right) {
                put_part(a, out.list, s, (size_t)(hit - s.s) + what.len, s.len);
                s = str_cut(s, 0, (size_t)(hit - s.s));
            } else {
                put_part(a, out.list, s, 0, (size_t)(hit - s.s));
                s = str_cut(s, (size_t)(hit - s.s) + what.len, s.len);
            }
        }
        put_part(a, out.list, s, 0, s.len);
    }
    if (from_right)
        reverse_list(out.list);
    return out;
}

/* "\n", "\r\n" and "\r"; other line ends do not occur in templates. */
struct value text_lines(struct arena *a, struct str s)
{
    struct value out = list_new(a);

    for (size_t i = 0, j; i < s.len; i = j) {
        for (j = i; j < s.len && s.s[j] != '\n' && s.s[j] != '\r'; j++)
            ;
        put_part(a, out.list, s, i, j);
        if (j < s.len)
            j += s.s[j] == '\r' && j + 1 < s.len && s.s[j + 1] == '\n' ? 2 : 1;
    }
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

struct str text_indent(struct arena *a, struct str s, struct str by, bool first, bool blank)
{
    struct builder b = {0};

    if (first)
        builder_put(a, &b, by);
    for (size_t i = 0, j; i < s.len; i = j) {
        for (j = i; j < s.len && s.s[j] != '\n'; j++)
            ;
        j += j < s.len;
        if (i && (blank || s.s[i] != '\n')) /* empty lines stay empty unless requested */
            builder_put(a, &b, by);
        builder_put(a, &b, str_cut(s, i, j));
    }
    return builder_str(&b);
}

struct str text_escape(struct arena *a, struct str s)
{
    struct builder b = {0};

    for (size_t i = 0; i < s.len; i++) {
        const char *as = s.s[i] == '&'    ? "&amp;"
                         : s.s[i] == '<'  ? "&lt;"
                         : s.s[i] == '>'  ? "&gt;"
                         : s.s[i] == '\'' ? "&#39;"
                         : s.s[i] == '"'  ? "&#34;"
                                          : NULL;

        if (as)
            builder_text(a, &b, as, strlen(as), s.mask ? s.mask[i] : 0);
        else
            builder_put(a, &b, str_cut(s, i, i + 1));
    }
    return builder_str(&b);
}

struct str text_center(struct arena *a, struct str s, int64_t width)
{
    struct value blank = value_str(str_of(" "));
    int64_t pad = width - (int64_t)str_length(a, s), left;
    struct builder b = {0};

    if (pad <= 0)
        return s;
    left = pad / 2 + (pad & width & 1); /* position of an odd blank, as in Python */
    builder_put(a, &b, value_binary(a, OP_MUL, blank, value_int(left)).str);
    builder_put(a, &b, s);
    builder_put(a, &b, value_binary(a, OP_MUL, blank, value_int(pad - left)).str);
    return builder_str(&b);
}

/* truncate(length=255, killwords=false, end='...', leeway=5) */
struct str text_truncate(struct arena *a, struct str s, const struct arguments *args)
{
    int64_t most = value_need_integer(a, arguments_get(args, 0, "length", value_none()), 255,
                                      "truncate's length"),
            leeway = value_need_integer(a, arguments_get(args, 3, "leeway", value_none()), 5,
                                        "truncate's leeway");
    struct str end = value_need_string(a, arguments_get(args, 2, "end", value_str(str_of("..."))),
                                       "truncate's end");
    int64_t keep = most - (int64_t)str_length(a, end);
    struct builder b = {0};

    if (keep < 0 || leeway < 0)
        jinja_fail(a, ERR_INPUT, "truncate's length is less than its end, or its leeway than 0");
    if ((int64_t)str_length(a, s) - leeway <= most)
        return s;
    s = value_slice(a, value_str(s), value_none(), value_int(keep), value_none()).str;
    if (!value_true(arguments_get(args, 1, "killwords", value_bool(false)))) {
        struct value words = text_split(a, s, value_str(str_of(" ")), 1, true);

        s = words.list->v[0].str;
    }
    builder_put(a, &b, s);
    builder_put(a, &b, end);
    return builder_str(&b);
}

int64_t text_words(struct arena *a, struct str s)
{
    int64_t words = 0;
    bool inside = false;

    jinja_charge(a, s.len);
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t c = 0;
        bool word;

        n = utf8_decode(s.s + i, s.len - i, &c);
        n = n ? n : 1;
        word = c == '_' || (c >= '0' && c <= '9') || text_letter(c);
        words += word && !inside;
        inside = word;
    }
    return words;
}

/* ---- str.format ---- */

struct field {
    char fill[4];
    size_t fill_len;
    char align, type;         /* 0: none given */
    int64_t width, precision; /* -1: none */
};

int64_t format_number(struct arena *a, struct str s, size_t *at)
{
    int64_t n = -1;

    for (; *at < s.len && s.s[*at] >= '0' && s.s[*at] <= '9'; ++*at) {
        n = 10 * (n < 0 ? 0 : n) + (s.s[*at] - '0');
        if (n > 9999)
            jinja_fail(a, ERR_INPUT, "a number in a format is larger than 9999");
    }
    return n;
}

/* [[fill]align][0][width][.precision][type] with the types s, d and f */
static struct field format_spec(struct arena *a, struct str spec)
{
    struct field f = {.fill = " ", .fill_len = 1, .width = -1, .precision = -1};
    size_t at = 0, n;
    uint32_t c;

    n = utf8_decode(spec.s, spec.len, &c);
    if (n && n < spec.len && strchr("<>^", spec.s[n]) && spec.s[n]) {
        memcpy(f.fill, spec.s, n);
        f.fill_len = n;
        f.align = spec.s[n];
        at = n + 1;
    } else if (spec.len && strchr("<>^", spec.s[0]) && spec.s[0])
        f.align = spec.s[at++];
    if (at < spec.len && spec.s[at] == '0' && !f.align) {
        f.fill[0] = '0';
        f.align = '=';
    }
    f.width = format_number(a, spec, &at);
    if (at < spec.len && spec.s[at] == '.') {
        at++;
        f.precision = format_number(a, spec, &at);
    }
    if (at < spec.len && strchr("sdf", spec.s[at]) && spec.s[at])
        f.type = spec.s[at++];
    if (at < spec.len)
        jinja_fail(a, ERR_INPUT, "the format '%.*s' is not supported",
                   (int)(spec.len < 40 ? spec.len : 40), spec.s);
    return f;
}

static struct str format_plain(struct arena *a, struct value v, const struct field *f)
{
    struct builder b = {0};
    char text[400];
    double d;
    bool number = value_number(v, &d);

    if (f->type == 'f' || (v.type == V_FLOAT && f->precision >= 0)) {
        if (!number || f->type != 'f' || f->precision > 60)
            jinja_fail(a, ERR_INPUT, "a format does not fit %s", value_kind(v));
        jinja_charge(a, sizeof text);
        builder_text(a, &b, text,
                     (size_t)snprintf(text, sizeof text, "%.*f",
                                      f->precision < 0 ? 6 : (int)f->precision, d),
                     0);
        return builder_str(&b);
    }
    if ((f->type == 'd' && v.type != V_INT) || (f->type == 's' && v.type != V_STRING) ||
        (f->precision >= 0 && v.type != V_STRING))
        jinja_fail(a, ERR_INPUT, "a format does not fit %s", value_kind(v));
    if (f->precision >= 0)
        return value_slice(a, v, value_none(), value_int(f->precision), value_none()).str;
    return value_text(a, v);
}

static void put_field(struct arena *a, struct builder *b, struct value v, struct str spec)
{
    struct field f = format_spec(a, spec);
    struct str text = format_plain(a, v, &f);
    int64_t pad = f.width - (int64_t)str_length(a, text), before, sign;
    double d;

    if (!f.align)
        f.align = value_number(v, &d) ? '>' : '<';
    sign = f.align == '=' && text.len && text.s[0] == '-';
    before = pad <= 0                                                   ? 0
             : f.align == '^'                                           ? pad / 2
             : f.align == '<' || (f.align == '=' && v.type == V_STRING) ? 0
                                                                        : pad;
    builder_put(a, b, str_cut(text, 0, (size_t)sign));
    for (int64_t i = 0; i < pad; i++) {
        if (i == before)
            builder_put(a, b, str_cut(text, (size_t)sign, text.len));
        builder_text(a, b, f.fill, f.fill_len, 0);
    }
    if (pad <= before)
        builder_put(a, b, str_cut(text, (size_t)sign, text.len));
}

static struct value field_value(struct arena *a, struct str name, const struct arguments *args,
                                int *next)
{
    size_t at = 0;
    int64_t i = format_number(a, name, &at);

    if (name.len == 0)
        i = (*next)++;
    else if (at < name.len) {
        for (int k = 0; k < args->n_named; k++)
            if (str_equal(a, args->named[k].name, name))
                return args->named[k].v;
        i = -1;
    }
    if (i < 0 || i >= args->n)
        jinja_fail(a, ERR_INPUT, "format has no value for '{%.*s}'",
                   (int)(name.len < 40 ? name.len : 40), name.s);
    return args->v[i];
}

/* Python's str.format: {}, {0} and {name}, each with an optional format after a colon. Members
 * ({0.x}, {0[1]}) and conversions ({!r}) fail. */
struct str text_format(struct arena *a, struct str s, const struct arguments *args)
{
    struct builder b = {0};
    int next = 0;

    for (size_t i = 0; i < s.len; i++) {
        size_t end, colon;

        if (s.s[i] != '{' && s.s[i] != '}') {
            for (end = i; end < s.len && s.s[end] != '{' && s.s[end] != '}'; end++)
                ;
            builder_put(a, &b, str_cut(s, i, end));
            i = end - 1;
            continue;
        }
        if (i + 1 < s.len && s.s[i + 1] == s.s[i]) {
            builder_put(a, &b, str_cut(s, i, i + 1));
            i++;
            continue;
        }
        for (end = i + 1; end < s.len && s.s[end] != '}' && s.s[end] != '{'; end++)
            ;
        if (s.s[i] == '}' || end >= s.len || s.s[end] == '{')
            jinja_fail(a, ERR_INPUT, "a single brace in a format");
        for (colon = i + 1; colon < end && s.s[colon] != ':'; colon++)
            ;
        put_field(a, &b, field_value(a, str_cut(s, i + 1, colon), args, &next),
                  str_cut(s, colon < end ? colon + 1 : end, end));
        i = end;
    }
    return builder_str(&b);
}

/* \uNNNN of the code point at i, or two of them; returns its bytes. */
static size_t json_escape(struct arena *a, struct builder *b, struct str s, size_t i)
{
    uint32_t c;
    size_t n = utf8_decode(s.s + i, s.len - i, &c);
    char text[16];

    if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + (c & 0x3ff)));
    builder_text(a, b, text, strlen(text), s.mask ? s.mask[i] : 0);
    return n;
}

/* A key as in json.dumps: non-strings are written as JSON. */
static struct str json_key(struct pair *p)
{
    if (p->name.type == V_BOOL)
        return str_of(p->name.b ? "true" : "false");
    return p->name.type == V_NONE ? str_of("null") : p->key;
}

void value_json(struct arena *a, struct builder *b, struct value v, const struct json_style *style,
                int level)
{
    char line[1 + 256];
    int by = style->indent, n = by < 0 ? 0 : by * (level + 1) > 255 ? 255 : by * (level + 1);
    bool first = true;

    jinja_enter(a);
    memset(line, ' ', sizeof line);
    line[0] = '\n';
    if (v.type == V_STRING) {
        builder_text(a, b, "\"", 1, 0);
        for (size_t i = 0; i < v.str.len; i++) {
            unsigned char c = (unsigned char)v.str.s[i], m = v.str.mask ? v.str.mask[i] : 0;
            char text[8];
            const char *short_form = c == '"'    ? "\\\""
                                     : c == '\\' ? "\\\\"
                                     : c == '\n' ? "\\n"
                                     : c == '\r' ? "\\r"
                                     : c == '\t' ? "\\t"
                                     : c == '\b' ? "\\b"
                                     : c == '\f' ? "\\f"
                                                 : NULL;

            if (short_form)
                builder_text(a, b, short_form, 2, m);
            else if (c < 0x20) {
                snprintf(text, sizeof text, "\\u%04x", c);
                builder_text(a, b, text, 6, m);
            } else if (c >= 0x80 && style->ascii)
                i += json_escape(a, b, v.str, i) - 1;
            else
                builder_text(a, b, (char *)&c, 1, m);
        }
        builder_text(a, b, "\"", 1, 0);
    } else if (v.type == V_LIST || v.type == V_DICT) {
        bool list = v.type == V_LIST;
        size_t count = list ? v.list->n : v.dict->n;

        builder_text(a, b, list ? "[" : "{", 1, 0);
        for (size_t i = 0; i < count; i++) {
            if (!first)
                builder_put(a, b, style->between);
            first = false;
            if (by >= 0)
                builder_text(a, b, line, (size_t)n + 1, 0);
            if (!list) {
                value_json(a, b, value_str(json_key(&v.dict->p[i])), style, 0);
                builder_put(a, b, style->colon);
            }
            value_json(a, b, list ? v.list->v[i] : v.dict->p[i].value, style, level + 1);
        }
        if (by >= 0 && count)
            builder_text(a, b, line, (size_t)(n - by) + 1, 0);
        builder_text(a, b, list ? "]" : "}", 1, 0);
    } else if (v.type == V_BOOL || v.type == V_NONE) {
        const char *word = v.type == V_NONE ? "null" : v.b ? "true" : "false";

        builder_text(a, b, word, strlen(word), 0);
    } else if (v.type == V_FLOAT && !isfinite(v.d)) {
        builder_put(a, b, str_of(isnan(v.d) ? "NaN" : v.d < 0 ? "-Infinity" : "Infinity"));
    } else if (v.type == V_INT || v.type == V_FLOAT) {
        builder_put(a, b, value_text(a, v));
    } else
        jinja_fail(a, ERR_INPUT, "%s cannot be written as JSON", value_kind(v));
    jinja_leave(a);
}
