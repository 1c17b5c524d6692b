/* Filters, tests and functions of the Jinja subset: one table each, looked up when a template is
 * parsed. Masks are kept with the text they cover. One thread per rendering. */
#include "engine/text/jinja/data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- tests ---- */

/* clang-format off */
#define TESTS(X)   \
    X(defined)     \
    X(undefined)   \
    X(none)        \
    X(string)      \
    X(number)      \
    X(integer)     \
    X(float)       \
    X(boolean)     \
    X(mapping)     \
    X(iterable)    \
    X(sequence)    \
    X(true)        \
    X(false)       \
    X(odd)         \
    X(even)        \
    X(divisibleby) \
    X(sameas)      \
    X(equalto)     \
    X(eq)          \
    X(ne)          \
    X(lt)          \
    X(le)          \
    X(gt)          \
    X(ge)          \
    X(in)          \
    X(callable)    \
    X(escaped)     \
    X(lower)       \
    X(upper)
/* clang-format on */

enum {
#define X(name) TEST_##name,
    TESTS(X)
#undef X
};

static const char *const test_names[] = {
#define X(name) #name,
    TESTS(X)
#undef X
};

static int find_name(const char *const *names, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, names[i]))
            return (int)i;
    return -1;
}

int builtin_test(struct str name)
{
    static const struct {
        const char *name;
        int test;
    } others[] = {{"==", TEST_eq}, {"!=", TEST_ne}, {"<", TEST_lt},  {"lessthan", TEST_lt},
                  {"<=", TEST_le}, {">", TEST_gt},  {">=", TEST_ge}, {"greaterthan", TEST_gt}};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (str_is(name, others[i].name))
            return others[i].test;
    return find_name(test_names, sizeof test_names / sizeof *test_names, name);
}

/* Python's islower() and isupper(): unchanged by one case, and changed by the other. */
static bool in_case(struct arena *a, struct value v, enum letter_case how, enum letter_case other)
{
    struct str s = value_text(a, v);

    return str_equal(a, s, text_change_case(a, s, how)) &&
           !str_equal(a, s, text_change_case(a, s, other));
}

bool test_call(struct arena *a, int test, struct value v, const struct arguments *args)
{
    struct value other = arguments_get(args, 0, NULL, (struct value){0});

    switch (test) {
    case TEST_defined: return v.type != V_UNDEFINED;
    case TEST_undefined: return v.type == V_UNDEFINED;
    case TEST_none: return v.type == V_NONE;
    case TEST_string: return v.type == V_STRING;
    case TEST_number: return v.type == V_INT || v.type == V_FLOAT || v.type == V_BOOL;
    case TEST_integer: return v.type == V_INT;
    case TEST_float: return v.type == V_FLOAT;
    case TEST_boolean: return v.type == V_BOOL;
    case TEST_mapping: return v.type == V_DICT;
    case TEST_iterable:
    case TEST_sequence:
        return v.type == V_LIST || v.type == V_DICT || v.type == V_STRING || v.type == V_UNDEFINED;
    case TEST_true: return v.type == V_BOOL && v.b;
    case TEST_false: return v.type == V_BOOL && !v.b;
    case TEST_odd: return v.type == V_INT && v.i % 2 != 0;
    case TEST_even: return v.type == V_INT && v.i % 2 == 0;
    case TEST_divisibleby:
        return v.type == V_INT && other.type == V_INT && other.i != 0 &&
               (other.i == -1 || v.i % other.i == 0);
    case TEST_sameas:
        return v.type == other.type && v.type != V_FLOAT && value_equal(a, v, other) &&
               (v.type != V_LIST || v.list == other.list) &&
               (v.type != V_DICT || v.dict == other.dict);
    case TEST_equalto:
    case TEST_eq: return value_equal(a, v, other);
    case TEST_ne: return !value_equal(a, v, other);
    case TEST_lt: return value_compare(a, v, other) < 0;
    case TEST_le: return value_compare(a, v, other) <= 0;
    case TEST_gt: return value_compare(a, v, other) > 0;
    case TEST_ge: return value_compare(a, v, other) >= 0;
    case TEST_in: return value_contains(a, other, v);
    case TEST_callable: return v.type == V_MACRO || v.type == V_FUNCTION;
    case TEST_escaped: return v.type == V_STRING && v.str.safe;
    case TEST_lower: return in_case(a, v, CASE_LOWER, CASE_UPPER);
    case TEST_upper: return in_case(a, v, CASE_UPPER, CASE_LOWER);
    }
    return false;
}

/* ---- filters ---- */

/* clang-format off */
#define FILTERS(X) \
    X(trim)        \
    X(upper)       \
    X(lower)       \
    X(capitalize)  \
    X(title)       \
    X(length)      \
    X(count)       \
    X(default)     \
    X(d)           \
    X(tojson)      \
    X(first)       \
    X(last)        \
    X(join)        \
    X(replace)     \
    X(list)        \
    X(string)      \
    X(int)         \
    X(float)       \
    X(abs)         \
    X(reverse)     \
    X(safe)        \
    X(indent)      \
    X(items)       \
    X(dictsort)    \
    X(map)         \
    X(select)      \
    X(reject)      \
    X(selectattr)  \
    X(rejectattr)  \
    X(unique)      \
    X(sort)        \
    X(groupby)     \
    X(batch)       \
    X(slice)       \
    X(min)         \
    X(max)         \
    X(sum)         \
    X(round)       \
    X(format)      \
    X(center)      \
    X(truncate)    \
    X(wordcount)   \
    X(escape)      \
    X(e)
/* clang-format on */

enum {
#define X(name) FILTER_##name,
    FILTERS(X)
#undef X
};

static const char *const filter_names[] = {
#define X(name) #name,
    FILTERS(X)
#undef X
};

int builtin_filter(struct str name)
{
    return find_name(filter_names, sizeof filter_names / sizeof *filter_names, name);
}

/* select, reject, selectattr, rejectattr: [attribute,] [test, [argument]] */
static struct value choose(struct arena *a, struct value v, const struct arguments *args,
                           bool attribute, bool keep)
{
    struct list *in = value_items(a, value_true(v) ? v : list_new(a));
    struct value out = list_new(a),
                 test_name = arguments_get(args, attribute ? 1 : 0, NULL, value_none());
    struct arguments rest = {0};
    int test = -1;

    if (test_name.type == V_STRING) {
        test = builtin_test(test_name.str);
        if (test < 0)
            jinja_fail(a, ERR_INPUT, "the test '%.*s' is not supported", (int)test_name.str.len,
                       test_name.str.s);
    }
    for (int i = attribute ? 2 : 1; i < args->n; i++)
        rest.v[rest.n++] = args->v[i];
    for (size_t i = 0; i < in->n; i++) {
        struct value x = attribute
                             ? value_member(a, in->v[i], arguments_get(args, 0, NULL, value_none()))
                             : in->v[i];

        jinja_charge(a, 0);
        if ((test < 0 ? value_true(x) : test_call(a, test, x, &rest)) == keep)
            list_put(a, out.list, in->v[i]);
    }
    return out;
}

static struct value map(struct arena *a, struct value v, const struct arguments *args)
{
    struct list *in = value_items(a, value_true(v) ? v : list_new(a));
    struct value out = list_new(a), attribute = arguments_get(args, 99, "attribute", value_none()),
                 name = arguments_get(args, 0, NULL, value_none());
    struct value fallback = arguments_get(args, 99, "default", (struct value){0}), x;
    struct arguments rest;
    int filter = name.type == V_STRING ? builtin_filter(name.str) : -1;
    bool members = value_is_attribute(attribute);

    if (!members && filter < 0)
        jinja_fail(a, ERR_INPUT, "map needs an attribute or a filter");
    rest = *args;
    for (int i = 1; i < args->n; i++)
        rest.v[i - 1] = args->v[i];
    rest.n = args->n ? args->n - 1 : 0;
    for (size_t i = 0; i < in->n; i++) {
        x = members ? value_member(a, in->v[i], attribute)
                    : filter_call(a, filter, in->v[i], &rest);
        list_put(a, out.list, members && x.type == V_UNDEFINED ? fallback : x);
    }
    return out;
}

static struct value to_number(struct arena *a, struct value v, bool integer,
                              const struct arguments *args)
{
    struct value fallback = arguments_get(args, 0, "default",
                                          integer ? value_int(0) : (struct value){.type = V_FLOAT});
    char text[64], *end;
    long long whole;
    double d;

    jinja_charge(a, sizeof text);
    if (integer && value_need_integer(a, arguments_get(args, 1, "base", value_int(10)), 10,
                                      "int's base") != 10)
        jinja_fail(a, ERR_INPUT, "int with a base is not supported");
    if (v.type == V_STRING)
        v.str = text_strip(a, v.str, value_none(), true, true);
    if (v.type == V_STRING && v.str.len && v.str.len < sizeof text &&
        !memchr(v.str.s, 'x', v.str.len) && !memchr(v.str.s, 'X', v.str.len)) {
        memcpy(text, v.str.s, v.str.len);
        text[v.str.len] = 0;
        errno = 0;
        whole = strtoll(text, &end, 10);
        if (integer && !errno && end == text + v.str.len)
            return value_int(whole);
        d = strtod(text, &end);
        if (end != text + v.str.len)
            return fallback;
    } else if (v.type == V_INT || v.type == V_BOOL)
        d = v.type == V_INT ? (double)v.i : (double)v.b;
    else if (v.type == V_FLOAT)
        d = v.d;
    else
        return fallback;
    if (!integer)
        return (struct value){.type = V_FLOAT, .d = d};
    return v.type == V_INT ? v : fabs(d) < 9e18 ? value_int((int64_t)d) : fallback;
}

static struct value end_of(struct arena *a, struct value v, bool last)
{
    struct list *l = value_items(a, v);

    return l->n ? l->v[last ? l->n - 1 : 0] : (struct value){0};
}

static struct value reversed(struct arena *a, struct value v)
{
    struct list *l = value_items(a, v);
    struct value out = list_new(a);

    for (size_t i = l->n; i-- > 0;)
        list_put(a, out.list, l->v[i]);
    return v.type == V_STRING ? value_str(text_join(a, out.list, str_of(""))) : out;
}

/* Hugging Face's: tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false) */
static struct value to_json(struct arena *a, struct value v, const struct arguments *args)
{
    struct value indent = arguments_get(args, 1, "indent", value_none()),
                 separators = arguments_get(args, 2, "separators", value_none());
    struct json_style style = {str_of(", "), str_of(": "), -1,
                               arguments_flag(args, 0, "ensure_ascii")};
    struct builder b = {0};

    if (arguments_flag(args, 3, "sort_keys"))
        jinja_fail(a, ERR_INPUT, "tojson with sort_keys is not supported");
    if (indent.type != V_NONE) {
        int64_t n = value_need_integer(a, indent, 0, "tojson's indent");

        if (n < 0 || n > 16)
            jinja_fail(a, ERR_INPUT, "tojson's indent is not between 0 and 16");
        style.indent = (int)n;
        style.between = str_of(",");
    }
    if (separators.type == V_LIST && separators.list->n == 2) {
        style.between = value_need_string(a, separators.list->v[0], "tojson's separators");
        style.colon = value_need_string(a, separators.list->v[1], "tojson's separators");
    } else if (separators.type != V_NONE)
        jinja_fail(a, ERR_INPUT, "tojson's separators are not two strings");
    value_json(a, &b, v, &style, 0);
    return value_str(builder_str(&b));
}

static struct value indented(struct arena *a, struct value v, const struct arguments *args)
{
    struct value by = arguments_get(args, 0, "width", value_int(4));
    bool first = value_true(arguments_get(args, 1, "first", value_bool(false)));
    bool blank = value_true(arguments_get(args, 2, "blank", value_bool(false)));

    if (by.type != V_STRING)
        by = value_binary(a, OP_MUL, value_str(str_of(" ")),
                          value_int(value_need_integer(a, by, 4, "indent's width")));
    return value_str(text_indent(a, value_text(a, v), by.str, first, blank));
}

/* round(precision=0, method='common'): halves to even, as Python; ceil and floor give a float. */
static struct value rounded(struct arena *a, struct value v, const struct arguments *args)
{
    int64_t places = value_need_integer(a, arguments_get(args, 0, "precision", value_int(0)), 0,
                                        "round's precision");
    struct value method = arguments_get(args, 1, "method", value_str(str_of("common")));
    struct str how = value_need_string(a, method, "round's method");
    char text[400];
    double d, scale;

    if (!value_number(v, &d) || places < -15 || places > 15)
        jinja_fail(a, ERR_INPUT, "round needs a number and at most 15 places, not %s",
                   value_kind(v));
    jinja_charge(a, sizeof text);
    scale = pow(10, (double)(places < 0 ? -places : places));
    if (str_is(how, "ceil") || str_is(how, "floor")) {
        d = places < 0 ? d / scale : d * scale;
        d = str_is(how, "ceil") ? ceil(d) : floor(d);
        return (struct value){.type = V_FLOAT, .d = places < 0 ? d * scale : d / scale};
    }
    if (!str_is(how, "common"))
        jinja_fail(a, ERR_INPUT, "round's method is common, ceil or floor");
    if (v.type != V_FLOAT && places >= 0)
        return value_int(v.type == V_INT ? v.i : v.b);
    if (places < 0)
        d = nearbyint(d / scale) * scale;
    else {
        snprintf(text, sizeof text, "%.*f", (int)places, d);
        d = strtod(text, NULL);
    }
    return v.type == V_FLOAT ? (struct value){.type = V_FLOAT, .d = d} : value_int((int64_t)d);
}

/* 'text' | format(...): as % with a tuple or a mapping */
static struct value formatted(struct arena *a, struct value v, const struct arguments *args)
{
    struct value by = args->n_named ? dict_new(a) : list_new(a);

    if (args->n && args->n_named)
        jinja_fail(a, ERR_INPUT, "format takes values or named values, not both");
    if (args->n_named)
        for (int i = 0; i < args->n_named; i++)
            dict_put(a, by.dict, args->named[i].name, args->named[i].v);
    else
        by.list->tuple = true;
    for (int i = 0; i < args->n; i++)
        list_put(a, by.list, args->v[i]);
    return value_str(text_percent(a, value_text(a, v), by));
}

struct value filter_call(struct arena *a, int filter, struct value v, const struct arguments *args)
{
    struct value first = arguments_get(args, 0, NULL, (struct value){0}), out;

    jinja_charge(a, 0);
    switch (filter) {
    case FILTER_trim:
        return value_str(text_strip(a, value_text(a, v),
                                    arguments_get(args, 0, "chars", value_none()), true, true));
    case FILTER_upper: return value_str(text_change_case(a, value_text(a, v), CASE_UPPER));
    case FILTER_lower: return value_str(text_change_case(a, value_text(a, v), CASE_LOWER));
    case FILTER_capitalize: return value_str(text_change_case(a, value_text(a, v), CASE_CAPITAL));
    case FILTER_title: return value_str(text_change_case(a, value_text(a, v), CASE_WORDS));
    case FILTER_length:
    case FILTER_count: return value_int(value_length(a, v));
    case FILTER_default:
    case FILTER_d:
        out = arguments_get(args, 1, "boolean", value_bool(false));
        return v.type == V_UNDEFINED || (value_true(out) && !value_true(v))
                   ? arguments_get(args, 0, "default_value", value_str(str_of("")))
                   : v;
    case FILTER_tojson: return to_json(a, v, args);
    case FILTER_first: return end_of(a, v, false);
    case FILTER_last: return end_of(a, v, true);
    case FILTER_join:
        out = arguments_get(args, 99, "attribute", value_none());
        if (value_is_attribute(out)) {
            struct arguments by = {.n_named = 1, .named = {{str_of("attribute"), out}}};

            v = map(a, v, &by);
        }
        return value_str(text_join(
            a, value_items(a, v),
            first.type == V_UNDEFINED ? str_of("") : value_need_string(a, first, "join")));
    case FILTER_replace:
        return value_str(
            text_replace(a, value_text(a, v), value_need_string(a, first, "replace"),
                         value_need_string(a, arguments_get(args, 1, NULL, first), "replace"),
                         value_need_integer(a, arguments_get(args, 2, "count", value_none()), -1,
                                            "replace's limit")));
    case FILTER_list:
        out = list_new(a);
        if (v.type != V_LIST)
            out.list = value_items(a, v);
        for (size_t i = 0; v.type == V_LIST && i < v.list->n; i++)
            list_put(a, out.list, v.list->v[i]);
        return out;
    case FILTER_string: return value_str(value_text(a, v));
    case FILTER_int: return to_number(a, v, true, args);
    case FILTER_float: return to_number(a, v, false, args);
    case FILTER_abs:
        if (v.type == V_FLOAT)
            v.d = fabs(v.d);
        else if (v.type == V_INT || v.type == V_BOOL)
            v = value_int(value_need_integer(a, v, 0, "abs"));
        else
            jinja_fail(a, ERR_INPUT, "abs needs a number, not %s", value_kind(v));
        if (v.type == V_INT && v.i < 0)
            v = value_binary(a, OP_SUB, value_int(0), v);
        return v;
    case FILTER_reverse: return reversed(a, v);
    case FILTER_safe:
        v = value_str(value_text(a, v));
        v.str.safe = true;
        return v;
    case FILTER_indent: return indented(a, v, args);
    case FILTER_items: return value_pairs(a, v);
    case FILTER_dictsort: return sequence_pairs(a, v, args);
    case FILTER_map: return map(a, v, args);
    case FILTER_select: return choose(a, v, args, false, true);
    case FILTER_reject: return choose(a, v, args, false, false);
    case FILTER_selectattr: return choose(a, v, args, true, true);
    case FILTER_rejectattr: return choose(a, v, args, true, false);
    case FILTER_unique: return sequence_unique(a, v, args);
    case FILTER_sort: return sequence_sort(a, v, args);
    case FILTER_groupby: return sequence_groups(a, v, args);
    case FILTER_batch: return sequence_batch(a, v, args);
    case FILTER_slice: return sequence_slice(a, v, args);
    case FILTER_min: return sequence_extreme(a, v, args, false);
    case FILTER_max: return sequence_extreme(a, v, args, true);
    case FILTER_sum: return sequence_sum(a, v, args);
    case FILTER_round: return rounded(a, v, args);
    case FILTER_format: return formatted(a, v, args);
    case FILTER_center:
        return value_str(text_center(
            a, value_text(a, v),
            value_need_integer(a, arguments_get(args, 0, "width", value_none()), 80, "center")));
    case FILTER_truncate: return value_str(text_truncate(a, value_text(a, v), args));
    case FILTER_wordcount: return value_int(text_words(a, value_text(a, v)));
    case FILTER_escape:
    case FILTER_e: return value_escaped(a, v);
    }
    return (struct value){0};
}

/* ---- functions ---- */

#define FUNCTIONS(X) X(raise_exception) X(namespace) X(range) X(dict) X(strftime_now)

enum {
#define X(name) FUNCTION_##name,
    FUNCTIONS(X)
#undef X
};

static const char *const function_names[] = {
#define X(name) #name,
    FUNCTIONS(X)
#undef X
};

int builtin_function(struct str name)
{
    return find_name(function_names, sizeof function_names / sizeof *function_names, name);
}

struct value function_call(struct arena *a, int function, const struct arguments *args)
{
    struct value v = arguments_get(args, 0, NULL, (struct value){0}), out = {0};
    struct builder b = {0};
    char text[128];
    int64_t from = 0, to, step;
    time_t now;
    struct tm tm;

    switch (function) {
    case FUNCTION_raise_exception: {
        struct str s = value_text(a, v);

        jinja_fail(a, ERR_INPUT, "%.*s", (int)(s.len < 200 ? s.len : 200), s.s);
    }
    case FUNCTION_namespace:
    case FUNCTION_dict:
        if (args->n > 1 || (args->n && v.type != V_DICT))
            jinja_fail(a, ERR_INPUT, "%s takes a mapping and named values alone",
                       function_names[function]);
        out = dict_new(a);
        for (size_t i = 0; v.type == V_DICT && i < v.dict->n; i++)
            dict_put_named(a, out.dict, v.dict->p[i].name, v.dict->p[i].value);
        for (int i = 0; i < args->n_named; i++)
            dict_put(a, out.dict, args->named[i].name, args->named[i].v);
        out.dict->space = function == FUNCTION_namespace;
        return out;
    case FUNCTION_range:
        for (int i = 0; i < args->n; i++)
            if (args->v[i].type != V_INT || args->v[i].i > 1000000 || args->v[i].i < -1000000)
                jinja_fail(a, ERR_INPUT, "range needs integers up to a million");
        to = v.type == V_INT ? v.i : 0;
        step = args->n > 2 ? args->v[2].i : 1;
        if (args->n > 1) {
            from = v.i;
            to = args->v[1].i;
        }
        if (step == 0)
            jinja_fail(a, ERR_INPUT, "range with step 0");
        out = list_new(a);
        for (; step > 0 ? from < to : from > to; from += step) {
            jinja_charge(a, 0);
            list_put(a, out.list, value_int(from));
        }
        return out;
    case FUNCTION_strftime_now: {
        struct str s = value_need_string(a, v, "strftime_now");
        char format[64];

        if (s.len == 0 || s.len >= sizeof format)
            jinja_fail(a, ERR_INPUT, "strftime_now needs a short format");
        memcpy(format, s.s, s.len);
        format[s.len] = 0;
        now = a->now ? a->now : time(NULL);
        localtime_r(&now, &tm);
        builder_text(a, &b, text, strftime(text, sizeof text, format, &tm), 0);
        return value_str(builder_str(&b));
    }
    }
    return out;
}
