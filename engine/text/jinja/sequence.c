/* Filters over iterables: order, groups, rows, extremes and sums, as in jinja2. One thread per
 * rendering. */
#include "engine/text/jinja/data.h"

struct value value_member(struct arena *a, struct value v, struct value name)
{
    size_t from = 0, to;

    if (name.type == V_INT)
        return value_get(a, v, name);
    for (; name.type == V_STRING && from <= name.str.len; from = to + 1) {
        bool index = true;
        int64_t i = 0;

        for (to = from; to < name.str.len && name.str.s[to] != '.'; to++) {
            index = index && to - from < 9 && name.str.s[to] >= '0' && name.str.s[to] <= '9';
            i = index ? 10 * i + (name.str.s[to] - '0') : 0;
        }
        v = value_get(a, v,
                      index && to > from ? value_int(i) : value_str(str_cut(name.str, from, to)));
    }
    return name.type == V_STRING ? v : (struct value){0};
}

bool value_is_attribute(struct value v)
{
    return v.type == V_STRING || v.type == V_INT;
}

bool arguments_flag(const struct arguments *args, int i, const char *name)
{
    return value_true(arguments_get(args, i, name, value_bool(false)));
}

/* Case-insensitive unless exact, as in Jinja. */
static struct value folded(struct arena *a, struct value key, bool exact)
{
    return key.type == V_STRING && !exact ? value_str(text_change_case(a, key.str, CASE_LOWER))
                                          : key;
}

/* The sort key of an item: itself, its attribute, or several separated by commas. */
static struct value key_of(struct arena *a, struct value item, struct value attribute, bool exact)
{
    struct value keys, names;

    if (!value_is_attribute(attribute))
        return folded(a, item, exact);
    if (attribute.type == V_INT || !attribute.str.len ||
        !memchr(attribute.str.s, ',', attribute.str.len))
        return folded(a, value_member(a, item, attribute), exact);
    keys = list_new(a);
    names = text_split(a, attribute.str, value_str(str_of(",")), -1, false);
    for (size_t i = 0; i < names.list->n; i++)
        list_put(a, keys.list, folded(a, value_member(a, item, names.list->v[i]), exact));
    return keys;
}

struct value sequence_unique(struct arena *a, struct value v, const struct arguments *args)
{
    struct list *l = value_items(a, v);
    struct value out = list_new(a), seen = list_new(a), key;

    for (size_t i = 0; i < l->n; i++) {
        key = key_of(a, l->v[i], arguments_get(args, 1, "attribute", value_none()),
                     arguments_flag(args, 0, "case_sensitive"));
        if (value_contains(a, seen, key))
            continue;
        list_put(a, seen.list, key);
        list_put(a, out.list, l->v[i]);
    }
    return out;
}

/* Stable. */
static struct value sort_by(struct arena *a, struct value v, struct value attribute, bool exact,
                            bool reverse)
{
    struct list *l = value_items(a, v);
    struct value out = list_new(a);
    struct value *keys = jinja_alloc(a, l->n, sizeof *keys);

    for (size_t i = 0; i < l->n; i++) {
        struct value item = l->v[i], key = key_of(a, item, attribute, exact);
        size_t at = i;

        list_put(a, out.list, item);
        for (int c; at > 0; at--) {
            jinja_charge(a, 0);
            c = value_compare(a, keys[at - 1], key);
            if (reverse ? c >= 0 : c <= 0)
                break;
            keys[at] = keys[at - 1];
            out.list->v[at] = out.list->v[at - 1];
        }
        keys[at] = key;
        out.list->v[at] = item;
    }
    return out;
}

struct value sequence_pairs(struct arena *a, struct value v, const struct arguments *args)
{
    struct value by = arguments_get(args, 1, "by", value_none());

    return sort_by(a, value_pairs(a, v), value_int(by.type == V_STRING && str_is(by.str, "value")),
                   arguments_flag(args, 0, "case_sensitive"), arguments_flag(args, 2, "reverse"));
}

struct value sequence_sort(struct arena *a, struct value v, const struct arguments *args)
{
    return sort_by(a, v, arguments_get(args, 2, "attribute", value_none()),
                   arguments_flag(args, 1, "case_sensitive"), arguments_flag(args, 0, "reverse"));
}

static struct value group_new(struct arena *a, struct value name)
{
    struct value group = list_new(a);

    group.list->tuple = group.list->group = true;
    list_put(a, group.list, name);
    list_put(a, group.list, list_new(a));
    return group;
}

static struct value with_fallback(struct arena *a, struct value v, struct value attribute,
                                  struct value fallback)
{
    struct value x = value_member(a, v, attribute);

    return x.type == V_UNDEFINED ? fallback : x;
}

/* groupby(attribute, default=undefined, case_sensitive=false): (grouper, list) in the order of the
 * groupers */
struct value sequence_groups(struct arena *a, struct value v, const struct arguments *args)
{
    struct value attribute = arguments_get(args, 0, "attribute", value_none()),
                 fallback = arguments_get(args, 1, "default", (struct value){0}),
                 pairs = list_new(a), out = list_new(a), last = {0};
    bool exact = arguments_flag(args, 2, "case_sensitive");
    struct list *l = value_items(a, v);

    if (!value_is_attribute(attribute))
        jinja_fail(a, ERR_INPUT, "groupby needs an attribute");
    for (size_t i = 0; i < l->n; i++) {
        struct value pair = list_new(a);

        list_put(a, pair.list, with_fallback(a, l->v[i], attribute, fallback));
        list_put(a, pair.list, l->v[i]);
        list_put(a, pairs.list, pair);
    }
    pairs = sort_by(a, pairs, value_int(0), exact, false);
    for (size_t i = 0; i < pairs.list->n; i++) {
        const struct list *pair = pairs.list->v[i].list;
        struct value key = folded(a, pair->v[0], exact);

        if (i == 0 || !value_equal(a, key, last))
            list_put(a, out.list, group_new(a, pair->v[0]));
        last = key;
        list_put(a, out.list->v[out.list->n - 1].list->v[1].list, pair->v[1]);
    }
    return out;
}

static int64_t need_count(struct arena *a, const struct arguments *args, const char *name)
{
    int64_t n = value_need_integer(a, arguments_get(args, 0, name, value_none()), 0, name);

    if (n < 1 || n > 1000000)
        jinja_fail(a, ERR_INPUT, "%s is not between 1 and a million", name);
    return n;
}

/* batch(linecount, fill_with=none): rows of that many items */
struct value sequence_batch(struct arena *a, struct value v, const struct arguments *args)
{
    int64_t n = need_count(a, args, "linecount");
    struct value fill = arguments_get(args, 1, "fill_with", value_none()), out = list_new(a), row;
    struct list *l = value_items(a, v);

    for (size_t i = 0; i < l->n; i++) {
        if (i % (size_t)n == 0)
            list_put(a, out.list, list_new(a));
        list_put(a, out.list->v[out.list->n - 1].list, l->v[i]);
    }
    if (out.list->n && fill.type != V_NONE)
        for (row = out.list->v[out.list->n - 1]; row.list->n < (size_t)n;)
            list_put(a, row.list, fill);
    return out;
}

/* slice(slices, fill_with=none): that many columns, the first ones longer */
struct value sequence_slice(struct arena *a, struct value v, const struct arguments *args)
{
    size_t n = (size_t)need_count(a, args, "slices"), at = 0;
    struct value fill = arguments_get(args, 1, "fill_with", value_none()), out = list_new(a);
    struct list *l = value_items(a, v);

    for (size_t i = 0; i < n; i++) {
        struct value column = list_new(a);
        size_t count = l->n / n + (i < l->n % n);

        for (size_t k = 0; k < count; k++)
            list_put(a, column.list, l->v[at++]);
        if (fill.type != V_NONE && i >= l->n % n)
            list_put(a, column.list, fill);
        list_put(a, out.list, column);
    }
    return out;
}

/* min, max(case_sensitive=false, attribute=none): the first of equals; nothing: undefined */
struct value sequence_extreme(struct arena *a, struct value v, const struct arguments *args,
                              bool most)
{
    struct value attribute = arguments_get(args, 1, "attribute", value_none()), best = {0}, key,
                 best_key = {0};
    bool exact = arguments_flag(args, 0, "case_sensitive");
    struct list *l = value_items(a, v);

    for (size_t i = 0; i < l->n; i++) {
        int c;

        key = key_of(a, l->v[i], attribute, exact);
        c = i ? value_compare(a, key, best_key) : 0;
        if (i == 0 || (most ? c > 0 : c < 0)) {
            best = l->v[i];
            best_key = key;
        }
    }
    return best;
}

/* sum(attribute=none, start=0) */
struct value sequence_sum(struct arena *a, struct value v, const struct arguments *args)
{
    struct value attribute = arguments_get(args, 0, "attribute", value_none()),
                 total = arguments_get(args, 1, "start", value_int(0));
    struct list *l = value_items(a, v);

    for (size_t i = 0; i < l->n; i++)
        total = value_binary(a, OP_ADD, total,
                             value_is_attribute(attribute) ? value_member(a, l->v[i], attribute)
                                                           : l->v[i]);
    return total;
}
