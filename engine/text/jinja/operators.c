/* Operators of the Jinja subset: members, slices, arithmetic and comparison, as in Python. Masks
 * are kept with the text they cover. One thread per rendering. */
#include "engine/text/jinja/data.h"

#include <math.h>

static size_t str_offset(struct arena *a, struct str s, size_t code_points)
{
    size_t i = 0;

    jinja_charge(a, code_points < s.len ? code_points : s.len);
    for (; i < s.len; i++)
        if (((unsigned char)s.s[i] & 0xc0) != 0x80 && code_points-- == 0)
            break;
    return i;
}

struct value value_get(struct arena *a, struct value o, struct value key)
{
    struct value *found;

    if (o.type == V_UNDEFINED)
        jinja_fail(a, ERR_INPUT, "a member of something undefined is asked for");
    if (o.type == V_DICT) {
        found = dict_find(a, o.dict, value_text(a, key));
        return found ? *found : (struct value){0};
    }
    if (o.type == V_LIST && o.list->group && key.type == V_STRING)
        key = value_int(str_is(key.str, "grouper") ? 0 : str_is(key.str, "list") ? 1 : 2);
    if (o.type == V_LIST && key.type == V_INT) {
        int64_t n = (int64_t)o.list->n, i = key.i < 0 ? key.i + n : key.i;

        return i >= 0 && i < n ? o.list->v[i] : (struct value){0};
    }
    if (o.type == V_STRING && key.type == V_INT) {
        int64_t n = (int64_t)str_length(a, o.str), i = key.i < 0 ? key.i + n : key.i;
        size_t from;

        if (i < 0 || i >= n)
            return (struct value){0};
        from = str_offset(a, o.str, (size_t)i);
        return value_str(
            str_cut(o.str, from, from + str_offset(a, str_cut(o.str, from, o.str.len), 1)));
    }
    return (struct value){0};
}

static int64_t clamp_index(struct arena *a, struct value v, int64_t n, int64_t fallback,
                           bool backwards)
{
    int64_t i;

    if (v.type == V_UNDEFINED || v.type == V_NONE)
        return fallback;
    i = value_need_integer(a, v, 0, "a slice's border");
    i = i < 0 ? (i < -n ? -1 : i + n) : i;
    if (backwards)
        return i < -1 ? -1 : i > n - 1 ? n - 1 : i;
    return i < 0 ? 0 : i > n ? n : i;
}

struct value value_slice(struct arena *a, struct value o, struct value from, struct value to,
                         struct value by)
{
    int64_t step = value_need_integer(a, by, 1, "a slice's step"), n, i, end;
    bool text = o.type == V_STRING;
    struct value out;

    if (!text && o.type != V_LIST)
        jinja_fail(a, ERR_INPUT, "%s cannot be sliced", value_kind(o));
    if (step == 0 || step < -1000000 || step > 1000000)
        jinja_fail(a, ERR_INPUT, "a slice's step is %lld", (long long)step);
    n = text ? (int64_t)str_length(a, o.str) : (int64_t)o.list->n;
    i = clamp_index(a, from, n, step < 0 ? n - 1 : 0, step < 0);
    end = clamp_index(a, to, n, step < 0 ? -1 : n, step < 0);
    if (text && step == 1) {
        size_t first = str_offset(a, o.str, (size_t)i), last = str_offset(a, o.str, (size_t)end);

        return value_str(first < last ? str_cut(o.str, first, last) : str_of(""));
    }
    if (text) {
        struct list *chars = value_items(a, o);
        struct builder b = {0};

        for (; step > 0 ? i < end : i > end; i += step)
            builder_put(a, &b, chars->v[i].str);
        return value_str(builder_str(&b));
    }
    out = list_new(a);
    out.list->tuple = o.list->tuple;
    for (; step > 0 ? i < end : i > end; i += step) {
        jinja_charge(a, 0);
        list_put(a, out.list, o.list->v[i]);
    }
    return out;
}

struct value value_escaped(struct arena *a, struct value v)
{
    struct str s = value_text(a, v);

    s = v.type == V_STRING && s.safe ? s : text_escape(a, s);
    s.safe = true;
    return value_str(s);
}

static bool is_safe(struct value v)
{
    return v.type == V_STRING && v.str.safe;
}

static struct value concatenated(struct arena *a, struct value x, struct value y)
{
    struct builder b = {0};
    struct value out;
    bool safe = is_safe(x) || is_safe(y);

    builder_put(a, &b, value_text(a, safe ? value_escaped(a, x) : x));
    builder_put(a, &b, value_text(a, safe ? value_escaped(a, y) : y));
    out = value_str(builder_str(&b));
    out.str.safe = safe;
    return out;
}

static struct value add(struct arena *a, struct value x, struct value y)
{
    struct value out;

    if (x.type == V_STRING && y.type == V_STRING)
        return concatenated(a, x, y);
    if (x.type == V_LIST && y.type == V_LIST) {
        if (x.list->tuple != y.list->tuple)
            jinja_fail(a, ERR_INPUT, "a tuple + a list is not possible");
        out = list_new(a);
        out.list->tuple = x.list->tuple;
        for (size_t i = 0; i < x.list->n; i++)
            list_put(a, out.list, x.list->v[i]);
        for (size_t i = 0; i < y.list->n; i++)
            list_put(a, out.list, y.list->v[i]);
        return out;
    }
    return (struct value){0};
}

static struct value repeat(struct arena *a, struct value x, int64_t times)
{
    struct value out = x.type == V_LIST ? list_new(a) : x;
    struct builder b = {0};

    if (x.type == V_LIST)
        out.list->tuple = x.list->tuple;
    if (x.type == V_STRING ? x.str.len == 0 : x.list->n == 0)
        times = 0;
    for (int64_t k = 0; k < times; k++) {
        if (x.type == V_STRING)
            builder_put(a, &b, x.str);
        for (size_t i = 0; x.type == V_LIST && i < x.list->n; i++)
            list_put(a, out.list, x.list->v[i]);
    }
    if (x.type == V_STRING) {
        out = value_str(builder_str(&b));
        out.str.safe = x.str.safe;
    }
    return out;
}

static int64_t power(struct arena *a, int64_t x, int64_t y)
{
    int64_t p = 1;

    while (y-- > 0) {
        jinja_charge(a, 0);
        if (__builtin_mul_overflow(p, x, &p))
            jinja_fail(a, ERR_INPUT, "a number is too large");
    }
    return p;
}

/* "%s" % y; values inserted into a safe text are escaped. */
static struct value percent(struct arena *a, struct value x, struct value y)
{
    struct value out;

    if (x.str.safe && y.type == V_STRING)
        y = value_escaped(a, y);
    if (x.str.safe && y.type == V_LIST) {
        out = list_new(a);
        out.list->tuple = y.list->tuple;
        for (size_t i = 0; i < y.list->n; i++)
            list_put(a, out.list,
                     y.list->v[i].type == V_STRING ? value_escaped(a, y.list->v[i]) : y.list->v[i]);
        y = out;
    }
    out = value_str(text_percent(a, x.str, y));
    out.str.safe = x.str.safe;
    return out;
}

static struct value arithmetic(struct arena *a, int op, struct value x, struct value y)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    double p, q, d = 0.0;
    int64_t i = 0, m, n;
    bool over = false;

    if (op == OP_ADD) {
        struct value v = add(a, x, y);

        if (v.type != V_UNDEFINED)
            return v;
    }
    if (op == OP_MOD && x.type == V_STRING)
        return percent(a, x, y);
    if (op == OP_MUL && (y.type == V_STRING || y.type == V_LIST)) {
        struct value swap = x;

        x = y;
        y = swap;
    }
    if (op == OP_MUL && (x.type == V_STRING || x.type == V_LIST) &&
        (y.type == V_INT || y.type == V_BOOL))
        return repeat(a, x, y.type == V_INT ? y.i : y.b);
    if (!value_number(x, &p) || !value_number(y, &q))
        jinja_fail(a, ERR_INPUT, "%s %s %s is not possible", value_kind(x), signs[op],
                   value_kind(y));
    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) && q == 0.0)
        jinja_fail(a, ERR_INPUT, "division by zero");
    if (x.type == V_FLOAT || y.type == V_FLOAT || op == OP_DIV || (op == OP_POW && q < 0)) {
        switch (op) {
        case OP_ADD: d = p + q; break;
        case OP_SUB: d = p - q; break;
        case OP_MUL: d = p * q; break;
        case OP_DIV: d = p / q; break;
        case OP_FLOOR: d = floor(p / q); break;
        case OP_MOD: d = p - q * floor(p / q); break;
        case OP_POW: d = pow(p, q); break;
        }
        return (struct value){.type = V_FLOAT, .d = d};
    }
    m = x.type == V_INT ? x.i : x.b;
    n = y.type == V_INT ? y.i : y.b;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(m, n, &i); break;
    case OP_SUB: over = __builtin_sub_overflow(m, n, &i); break;
    case OP_MUL: over = __builtin_mul_overflow(m, n, &i); break;
    case OP_FLOOR:
    case OP_MOD:
        over = n == -1 && m == INT64_MIN;
        if (!over) {
            int64_t quotient = m / n, rest = m % n;

            if (rest && (rest < 0) != (n < 0)) {
                quotient--;
                rest += n;
            }
            i = op == OP_FLOOR ? quotient : rest;
        }
        break;
    case OP_POW: i = power(a, m, n); break;
    }
    if (over)
        jinja_fail(a, ERR_INPUT, "a number is too large");
    return value_int(i);
}

struct value value_binary(struct arena *a, int op, struct value x, struct value y)
{
    struct builder b = {0};

    switch (op) {
    case OP_CONCAT: /* of the unescaped texts, even if safe */
        builder_put(a, &b, value_text(a, x));
        builder_put(a, &b, value_text(a, y));
        return value_str(builder_str(&b));
    case OP_EQ: return value_bool(value_equal(a, x, y));
    case OP_NE: return value_bool(!value_equal(a, x, y));
    case OP_LT: return value_bool(value_compare(a, x, y) < 0);
    case OP_LE: return value_bool(value_compare(a, x, y) <= 0);
    case OP_GT: return value_bool(value_compare(a, x, y) > 0);
    case OP_GE: return value_bool(value_compare(a, x, y) >= 0);
    case OP_IN: return value_bool(value_contains(a, y, x));
    case OP_NOT_IN: return value_bool(!value_contains(a, y, x));
    default: return arithmetic(a, op, x, y);
    }
}
