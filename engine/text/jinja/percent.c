/* Python's s % v: %[(name)][flags][width][.precision]type of a tuple, a mapping or one value. Masks
 * are kept with the text they cover. One thread per rendering. */
#include "engine/text/jinja/data.h"

#include <stdio.h>

struct conversion {
    struct str name; /* len 0: positional */
    bool left, zero, plus, space, other;
    int64_t width, precision; /* -1: none */
    char type;
};

/* Parses a conversion after %; *at is set to its end. */
static struct conversion read_conversion(struct arena *a, struct str s, size_t *at)
{
    struct conversion c = {.precision = -1};
    size_t from;

    if (*at < s.len && s.s[*at] == '(') {
        for (from = ++*at; *at < s.len && s.s[*at] != ')'; ++*at)
            ;
        c.name = str_cut(s, from, *at);
        *at += *at < s.len;
    }
    for (; *at < s.len && s.s[*at] && strchr("-0+ #", s.s[*at]); ++*at) {
        c.left = c.left || s.s[*at] == '-';
        c.zero = c.zero || s.s[*at] == '0';
        c.plus = c.plus || s.s[*at] == '+';
        c.space = c.space || s.s[*at] == ' ';
        c.other = c.other || s.s[*at] == '#';
    }
    c.width = format_number(a, s, at);
    if (*at < s.len && s.s[*at] == '.') {
        ++*at;
        c.precision = format_number(a, s, at);
        c.precision = c.precision < 0 ? 0 : c.precision;
    }
    if (*at >= s.len)
        jinja_fail(a, ERR_INPUT, "a format ends behind its %%");
    c.type = s.s[(*at)++];
    return c;
}

static struct str number_text(struct arena *a, struct value v, const struct conversion *c)
{
    char format[16], text[512];
    bool real = strchr("eEfFgG", c->type) != NULL;
    int64_t whole, places = c->precision;
    struct builder b = {0};
    double d;

    if (!value_number(v, &d) || (strchr("xXo", c->type) && v.type == V_FLOAT))
        jinja_fail(a, ERR_INPUT, "%%%c needs a number, not %s", c->type, value_kind(v));
    if (places > 100 || c->other)
        jinja_fail(a, ERR_INPUT, "a format with '#' or more than 100 places is not supported");
    if (!real && v.type == V_FLOAT && !(d > -9e18 && d < 9e18))
        jinja_fail(a, ERR_INPUT, "a number is too large");
    jinja_charge(a, sizeof text);
    snprintf(format, sizeof format, "%%%s%s.*%s%c", c->plus ? "+" : "",
             c->space && !c->plus ? " " : "", real ? "" : "ll",
             c->type == 'i' || c->type == 'u' ? 'd' : c->type);
    if (real)
        snprintf(text, sizeof text, format, places < 0 ? 6 : (int)places, d);
    else {
        whole = v.type == V_INT ? v.i : (int64_t)d;
        if (whole < 0 && strchr("xXo", c->type))
            jinja_fail(a, ERR_INPUT, "%%%c of a negative number is not supported", c->type);
        snprintf(text, sizeof text, format, places < 0 ? 1 : (int)places, (long long)whole);
    }
    builder_text(a, &b, text, strlen(text), 0);
    return builder_str(&b);
}

static struct str plain_text(struct arena *a, struct value v, const struct conversion *c)
{
    struct value text, list;

    if (c->type != 'r') {
        text = value_str(value_text(a, v));
    } else { /* as a list is printed, without the brackets */
        list = list_new(a);
        list_put(a, list.list, v);
        text = value_str(value_text(a, list));
        text.str = str_cut(text.str, 1, text.str.len - 1);
    }
    return c->precision < 0
               ? text.str
               : value_slice(a, text, value_none(), value_int(c->precision), value_none()).str;
}

static void put_padded(struct arena *a, struct builder *b, struct str text,
                       const struct conversion *c, bool number)
{
    int64_t pad = c->width - (int64_t)str_length(a, text);
    bool zero = number && c->zero && !c->left;
    size_t sign = zero && text.len && strchr("+- ", text.s[0]) && text.s[0];

    builder_put(a, b, str_cut(text, 0, sign));
    for (int64_t i = 0; i < pad && !c->left; i++)
        builder_text(a, b, zero ? "0" : " ", 1, 0);
    builder_put(a, b, str_cut(text, sign, text.len));
    for (int64_t i = 0; i < pad && c->left; i++)
        builder_text(a, b, " ", 1, 0);
}

static struct value percent_value(struct arena *a, struct value v, const struct conversion *c,
                                  size_t *next)
{
    bool tuple = v.type == V_LIST && v.list->tuple;
    struct value *found;

    if (c->name.len) {
        found = v.type == V_DICT ? dict_find(a, v.dict, c->name) : NULL;
        if (!found)
            jinja_fail(a, ERR_INPUT, "a format has no value for '%%(%.*s)'",
                       (int)(c->name.len < 40 ? c->name.len : 40), c->name.s);
        return *found;
    }
    if (*next >= (tuple ? v.list->n : 1))
        jinja_fail(a, ERR_INPUT, "not enough values for a format");
    return tuple ? v.list->v[(*next)++] : (++*next, v);
}

struct str text_percent(struct arena *a, struct str s, struct value v)
{
    bool tuple = v.type == V_LIST && v.list->tuple;
    struct builder b = {0};
    size_t next = 0;

    for (size_t i = 0, end; i < s.len;) {
        struct conversion c;
        bool number;

        for (end = i; end < s.len && s.s[end] != '%'; end++)
            ;
        builder_put(a, &b, str_cut(s, i, end));
        i = end + 1;
        if (end == s.len)
            break;
        c = read_conversion(a, s, &i);
        if (c.type == '%') {
            builder_text(a, &b, "%", 1, 0);
            continue;
        }
        number = c.type && strchr("diuxXoeEfFgG", c.type);
        if (!number && c.type != 's' && c.type != 'r')
            jinja_fail(a, ERR_INPUT, "the format %%%c is not supported", c.type);
        put_padded(a, &b,
                   number ? number_text(a, percent_value(a, v, &c, &next), &c)
                          : plain_text(a, percent_value(a, v, &c, &next), &c),
                   &c, number);
    }
    if (next < (tuple ? v.list->n : v.type == V_DICT || v.type == V_LIST ? 0 : 1))
        jinja_fail(a, ERR_INPUT, "not all values are used by a format");
    return builder_str(&b);
}
