/* Values of the Jinja subset: lists, dicts, truth, equality and order as in Python, and their
 * printed form. One thread per rendering. */
#include "engine/text/jinja/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct value list_new(struct arena *a)
{
    return (struct value){.type = V_LIST, .list = jinja_alloc(a, 1, sizeof(struct list))};
}

void list_put(struct arena *a, struct list *l, struct value v)
{
    jinja_charge(a, 0);
    if (l->n == l->size) {
        size_t size = l->size ? l->size * 2 : 8;
        struct value *items = jinja_alloc(a, size, sizeof *items);

        if (l->n)
            memcpy(items, l->v, l->n * sizeof *items);
        l->v = items;
        l->size = size;
    }
    l->v[l->n++] = v;
}

struct value dict_new(struct arena *a)
{
    return (struct value){.type = V_DICT, .dict = jinja_alloc(a, 1, sizeof(struct dict))};
}

struct value *dict_find(struct arena *a, const struct dict *d, struct str key)
{
    jinja_charge(a, d->n * 8);
    for (size_t i = 0; i < d->n; i++)
        if (str_equal(a, d->p[i].key, key))
            return &d->p[i].value;
    return NULL;
}

void dict_put(struct arena *a, struct dict *d, struct str key, struct value v)
{
    dict_put_named(a, d, value_str(key), v);
}

void dict_put_named(struct arena *a, struct dict *d, struct value name, struct value v)
{
    struct str key = value_text(a, name);
    struct value *old = dict_find(a, d, key);

    if (old) {
        *old = v;
        return;
    }
    if (d->n == d->size) {
        size_t size = d->size ? d->size * 2 : 8;
        struct pair *p = jinja_alloc(a, size, sizeof *p);

        if (d->n)
            memcpy(p, d->p, d->n * sizeof *p);
        d->p = p;
        d->size = size;
    }
    d->p[d->n++] = (struct pair){key, name, v};
}

const char *value_kind(struct value v)
{
    static const char *const names[] = {"undefined", "none",      "a boolean", "an integer",
                                        "a number",  "a string",  "a list",    "a mapping",
                                        "a macro",   "a function"};

    return names[v.type];
}

bool value_true(struct value v)
{
    switch (v.type) {
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.d != 0.0;
    case V_STRING: return v.str.len > 0;
    case V_LIST: return v.list->n > 0;
    case V_DICT: return v.dict->n > 0;
    case V_MACRO:
    case V_FUNCTION: return true;
    }
    return false;
}

bool value_number(struct value v, double *d)
{
    *d = v.type == V_INT     ? (double)v.i
         : v.type == V_FLOAT ? v.d
         : v.type == V_BOOL  ? (double)v.b
                             : 0.0;
    return v.type == V_INT || v.type == V_FLOAT || v.type == V_BOOL;
}

bool value_equal(struct arena *a, struct value x, struct value y)
{
    double p, q;
    bool same = true;

    jinja_charge(a, 0);
    if (value_number(x, &p) && value_number(y, &q))
        return x.type == V_FLOAT || y.type == V_FLOAT
                   ? p == q
                   : (x.type == V_INT ? x.i : x.b) == (y.type == V_INT ? y.i : y.b);
    if (x.type != y.type)
        return false;
    jinja_enter(a);
    if (x.type == V_STRING)
        same = str_equal(a, x.str, y.str);
    else if (x.type == V_LIST) {
        same = x.list->n == y.list->n && x.list->tuple == y.list->tuple;
        for (size_t i = 0; same && i < x.list->n; i++)
            same = value_equal(a, x.list->v[i], y.list->v[i]);
    } else if (x.type == V_DICT) {
        same = x.dict->n == y.dict->n;
        for (size_t i = 0; same && i < x.dict->n; i++) {
            struct value *other = dict_find(a, y.dict, x.dict->p[i].key);

            same = other && value_equal(a, x.dict->p[i].value, *other);
        }
    } else if (x.type == V_MACRO)
        same = x.macro == y.macro;
    else if (x.type == V_FUNCTION)
        same = x.i == y.i;
    jinja_leave(a);
    return same;
}

/* By the first items that differ. */
static int compare_lists(struct arena *a, const struct list *x, const struct list *y)
{
    int c = 0;

    jinja_enter(a);
    for (size_t i = 0; i < x->n && i < y->n && !c; i++)
        if (!value_equal(a, x->v[i], y->v[i]))
            c = value_compare(a, x->v[i], y->v[i]);
    jinja_leave(a);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

int value_compare(struct arena *a, struct value x, struct value y)
{
    double p, q;

    jinja_charge(a, 0);
    if (x.type == V_INT && y.type == V_INT)
        return x.i < y.i ? -1 : x.i > y.i;
    if (value_number(x, &p) && value_number(y, &q))
        return p < q ? -1 : p > q;
    if (x.type == V_STRING && y.type == V_STRING) {
        size_t n = x.str.len < y.str.len ? x.str.len : y.str.len;
        int c = n ? memcmp(x.str.s, y.str.s, n) : 0;

        jinja_charge(a, n);
        return c ? c : (x.str.len > y.str.len) - (x.str.len < y.str.len);
    }
    if (x.type == V_LIST && y.type == V_LIST && x.list->tuple == y.list->tuple)
        return compare_lists(a, x.list, y.list);
    jinja_fail(a, ERR_INPUT, "%s and %s cannot be ordered", value_kind(x), value_kind(y));
}

bool value_contains(struct arena *a, struct value in, struct value x)
{
    if (in.type == V_STRING && x.type == V_STRING) {
        jinja_charge(a, in.str.len);
        return x.str.len == 0 || memmem(in.str.s, in.str.len, x.str.s, x.str.len) != NULL;
    }
    if (in.type == V_DICT) {
        struct str key = value_text(a, x);

        jinja_charge(a, in.dict->n * 8);
        for (size_t i = 0; i < in.dict->n; i++)
            if (str_equal(a, in.dict->p[i].key, key))
                return value_equal(a, in.dict->p[i].name, x);
        return false;
    }
    if (in.type == V_LIST) {
        for (size_t i = 0; i < in.list->n; i++) {
            jinja_charge(a, 0);
            if (value_equal(a, in.list->v[i], x))
                return true;
        }
        return false;
    }
    if (in.type == V_UNDEFINED)
        return false;
    jinja_fail(a, ERR_INPUT, "'in' asks for %s in %s", value_kind(x), value_kind(in));
}

/* Python's shortest form that parses to the same value; with an exponent below 1e-4 and from 1e16
 * on. */
static struct str number_text(struct arena *a, double d)
{
    char text[40];
    struct builder b = {0};
    int digits = 1;

    jinja_charge(a, 17 * 32); /* printed and read up to 17 times */
    for (; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (strtod(text, NULL) == d)
            break;
    }
    if (fabs(d) >= 1 && fabs(d) < 1e16 && strchr(text, 'e'))
        snprintf(text, sizeof text, "%.0f", d);
    builder_text(a, &b, text, strlen(text), 0);
    if (isfinite(d) && !strpbrk(text, ".e"))
        builder_text(a, &b, ".0", 2, 0);
    return builder_str(&b);
}

/* In single quotes, unless it contains some and no double ones. */
static void put_string_repr(struct arena *a, struct builder *b, struct str s)
{
    char quote = s.len && memchr(s.s, '\'', s.len) && !memchr(s.s, '"', s.len) ? '"' : '\'',
         text[8];

    builder_text(a, b, &quote, 1, 0);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.s[i], mask = s.mask ? s.mask[i] : 0;
        int n = c == '\n' || c == '\r' || c == '\t'      ? snprintf(text, sizeof text, "\\%c",
                                                               c == '\n'   ? 'n'
                                                                    : c == '\r' ? 'r'
                                                                                : 't')
                : c == '\\' || c == (unsigned char)quote ? snprintf(text, sizeof text, "\\%c", c)
                : c < 0x20 || c == 0x7f                  ? snprintf(text, sizeof text, "\\x%02x", c)
                                                         : snprintf(text, sizeof text, "%c", c);

        builder_text(a, b, text, (size_t)n, mask);
    }
    builder_text(a, b, &quote, 1, 0);
}

static void put_repr(struct arena *a, struct builder *b, struct value v)
{
    jinja_enter(a);
    if (v.type == V_STRING) {
        if (v.str.safe)
            builder_put(a, b, str_of("Markup("));
        put_string_repr(a, b, v.str);
        if (v.str.safe)
            builder_put(a, b, str_of(")"));
    } else if (v.type == V_LIST) {
        builder_text(a, b, v.list->tuple ? "(" : "[", 1, 0);
        for (size_t i = 0; i < v.list->n; i++) {
            if (i)
                builder_text(a, b, ", ", 2, 0);
            put_repr(a, b, v.list->v[i]);
        }
        if (v.list->tuple && v.list->n == 1)
            builder_text(a, b, ",", 1, 0);
        builder_text(a, b, v.list->tuple ? ")" : "]", 1, 0);
    } else if (v.type == V_DICT) {
        builder_text(a, b, "{", 1, 0);
        for (size_t i = 0; i < v.dict->n; i++) {
            if (i)
                builder_text(a, b, ", ", 2, 0);
            put_repr(a, b, v.dict->p[i].name);
            builder_text(a, b, ": ", 2, 0);
            put_repr(a, b, v.dict->p[i].value);
        }
        builder_text(a, b, "}", 1, 0);
    } else if (v.type == V_UNDEFINED)
        builder_put(a, b, str_of("Undefined"));
    else
        builder_put(a, b, value_text(a, v));
    jinja_leave(a);
}

struct str value_text(struct arena *a, struct value v)
{
    struct builder b = {0};
    char text[32];

    switch (v.type) {
    case V_UNDEFINED: return str_of("");
    case V_NONE: return str_of("None");
    case V_BOOL: return str_of(v.b ? "True" : "False");
    case V_STRING: return v.str;
    case V_FLOAT: return number_text(a, v.d);
    case V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        builder_text(a, &b, text, strlen(text), 0);
        return builder_str(&b);
    case V_LIST:
    case V_DICT: put_repr(a, &b, v); return builder_str(&b);
    case V_MACRO:
    case V_FUNCTION: return str_of("<macro>");
    }
    return str_of("");
}

struct list *value_items(struct arena *a, struct value v)
{
    struct value out;

    if (v.type == V_LIST)
        return v.list;
    out = list_new(a);
    if (v.type == V_DICT) {
        for (size_t i = 0; i < v.dict->n; i++)
            list_put(a, out.list, v.dict->p[i].name);
    } else if (v.type == V_STRING) {
        for (size_t i = 0, j; i < v.str.len; i = j) {
            for (j = i + 1; j < v.str.len && ((unsigned char)v.str.s[j] & 0xc0) == 0x80; j++)
                ;
            list_put(a, out.list, value_str(str_cut(v.str, i, j)));
        }
    } else if (v.type != V_UNDEFINED)
        jinja_fail(a, ERR_INPUT, "%s cannot be walked over", value_kind(v));
    return out.list;
}

struct value value_pairs(struct arena *a, struct value v)
{
    struct value out = list_new(a), entry;

    if (v.type == V_UNDEFINED)
        return out;
    if (v.type != V_DICT)
        jinja_fail(a, ERR_INPUT, "%s has no items", value_kind(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        entry = list_new(a);
        entry.list->tuple = true;
        list_put(a, entry.list, v.dict->p[i].name);
        list_put(a, entry.list, v.dict->p[i].value);
        list_put(a, out.list, entry);
    }
    return out;
}

int64_t value_length(struct arena *a, struct value v)
{
    if (v.type == V_UNDEFINED)
        return 0;
    if (v.type == V_LIST || v.type == V_DICT)
        return (int64_t)(v.type == V_LIST ? v.list->n : v.dict->n);
    if (v.type != V_STRING)
        jinja_fail(a, ERR_INPUT, "%s has no length", value_kind(v));
    return (int64_t)str_length(a, v.str);
}
