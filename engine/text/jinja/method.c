/* Methods of strings, lists and mappings in the Jinja subset, one table for strings. A receiver's
 * and every argument's type is checked before its value is read: a template may call anything on
 * anything. Masks are kept with the text they cover. One thread per rendering. */
#include "engine/text/jinja/data.h"

static struct value argument(const struct arguments *args, int i, const char *name)
{
    return arguments_get(args, i, name, (struct value){0});
}

static struct value strip(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_strip(a, s, argument(args, 0, NULL), true, true));
}

static struct value lstrip(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_strip(a, s, argument(args, 0, NULL), true, false));
}

static struct value rstrip(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_strip(a, s, argument(args, 0, NULL), false, true));
}

static struct value upper(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_change_case(a, s, CASE_UPPER));
}

static struct value lower(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_change_case(a, s, CASE_LOWER));
}

static struct value title(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_change_case(a, s, CASE_TITLE));
}

static struct value capitalize(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_change_case(a, s, CASE_CAPITAL));
}

static bool has_at(struct arena *a, struct str s, struct value with, bool at_start,
                   const char *what)
{
    struct str w = value_need_string(a, with, what);

    return w.len <= s.len &&
           str_equal(a, str_cut(s, at_start ? 0 : s.len - w.len, at_start ? w.len : s.len), w);
}

static struct value has_end(struct arena *a, struct str s, struct value with, bool at_start,
                            const char *what)
{
    bool found = false;

    if (with.type != V_LIST)
        return value_bool(has_at(a, s, with, at_start, what));
    for (size_t i = 0; i < with.list->n && !found; i++) {
        jinja_charge(a, 0);
        found = has_at(a, s, with.list->v[i], at_start, what);
    }
    return value_bool(found);
}

static struct value startswith(struct arena *a, struct str s, const struct arguments *args)
{
    return has_end(a, s, argument(args, 0, NULL), true, "startswith");
}

static struct value endswith(struct arena *a, struct str s, const struct arguments *args)
{
    return has_end(a, s, argument(args, 0, NULL), false, "endswith");
}

static struct value removeprefix(struct arena *a, struct str s, const struct arguments *args)
{
    struct value with = argument(args, 0, NULL);

    return value_str(has_at(a, s, with, true, "removeprefix") ? str_cut(s, with.str.len, s.len)
                                                              : s);
}

static struct value removesuffix(struct arena *a, struct str s, const struct arguments *args)
{
    struct value with = argument(args, 0, NULL);

    return value_str(has_at(a, s, with, false, "removesuffix") ? str_cut(s, 0, s.len - with.str.len)
                                                               : s);
}

static struct value split(struct arena *a, struct str s, const struct arguments *args)
{
    return text_split(a, s, argument(args, 0, "sep"),
                      value_need_integer(a, argument(args, 1, "maxsplit"), -1, "split's limit"),
                      false);
}

static struct value rsplit(struct arena *a, struct str s, const struct arguments *args)
{
    return text_split(a, s, argument(args, 0, "sep"),
                      value_need_integer(a, argument(args, 1, "maxsplit"), -1, "rsplit's limit"),
                      true);
}

static struct value splitlines(struct arena *a, struct str s, const struct arguments *args)
{
    return text_lines(a, s);
}

static struct value replace(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(
        text_replace(a, s, value_need_string(a, argument(args, 0, NULL), "replace"),
                     value_need_string(a, argument(args, 1, NULL), "replace"),
                     value_need_integer(a, argument(args, 2, "count"), -1, "replace's limit")));
}

static struct value join(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_join(a, value_items(a, argument(args, 0, NULL)), s));
}

static struct value find(struct arena *a, struct str s, const struct arguments *args)
{
    struct str what = value_need_string(a, argument(args, 0, NULL), "find");
    const char *hit;

    jinja_charge(a, s.len + what.len);
    hit = what.len ? memmem(s.s, s.len, what.s, what.len) : s.s;
    return value_int(hit ? (int64_t)str_length(a, str_cut(s, 0, (size_t)(hit - s.s))) : -1);
}

static struct value count(struct arena *a, struct str s, const struct arguments *args)
{
    struct str what = value_need_string(a, argument(args, 0, NULL), "count");

    if (!what.len)
        return value_int((int64_t)str_length(a, s) + 1);
    return value_int((int64_t)text_split(a, s, value_str(what), -1, false).list->n - 1);
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static struct value isdigit_(struct arena *a, struct str s, const struct arguments *args)
{
    return value_bool(text_all(a, s, is_digit));
}
static struct value isalpha_(struct arena *a, struct str s, const struct arguments *args)
{
    return value_bool(text_all(a, s, text_letter));
}
static struct value isspace_(struct arena *a, struct str s, const struct arguments *args)
{
    return value_bool(text_all(a, s, text_blank));
}

static struct value format(struct arena *a, struct str s, const struct arguments *args)
{
    return value_str(text_format(a, s, args));
}

static const struct {
    const char *name;
    struct value (*call)(struct arena *a, struct str s, const struct arguments *args);
    int most; /* positional arguments: more are an error, as in Python, not ignored */
} string_methods[] = {
    {"strip", strip, 1},
    {"lstrip", lstrip, 1},
    {"rstrip", rstrip, 1},
    {"upper", upper, 0},
    {"lower", lower, 0},
    {"title", title, 0},
    {"capitalize", capitalize, 0},
    {"startswith", startswith, 1},
    {"endswith", endswith, 1},
    {"removeprefix", removeprefix, 1},
    {"removesuffix", removesuffix, 1},
    {"split", split, 2},
    {"rsplit", rsplit, 2},
    {"splitlines", splitlines, 0},
    {"replace", replace, 3},
    {"join", join, 1},
    {"find", find, 1},
    {"count", count, 1},
    {"isdigit", isdigit_, 0},
    {"isalpha", isalpha_, 0},
    {"isspace", isspace_, 0},
    {"format", format, 8},
};

static struct value string_method(struct arena *a, struct str s, struct str name,
                                  const struct arguments *args)
{
    for (size_t i = 0; i < sizeof string_methods / sizeof *string_methods; i++)
        if (str_is(name, string_methods[i].name)) {
            if (args->n > string_methods[i].most)
                jinja_fail(a, ERR_INPUT, "%s with more than %d arguments is not supported",
                           string_methods[i].name, string_methods[i].most);
            return string_methods[i].call(a, s, args);
        }
    jinja_fail(a, ERR_INPUT, "the method '%.*s' of strings is not supported",
               (int)(name.len < 40 ? name.len : 40), name.s);
}

/* loop.cycle(a, b, ...): uses the loop's own count, not that of a mapping with the same keys. */
static struct value cycle(struct arena *a, const struct dict *loop, const struct arguments *args)
{
    if (!loop->turn || args->n < 1)
        jinja_fail(a, ERR_INPUT, "cycle is a method of a for loop's `loop` and needs values");
    return args->v[(loop->turn - 1) % args->n];
}

/* loop.changed(a, b, ...): whether the arguments differ from the previous call's */
static struct value changed(struct arena *a, const struct dict *d, const struct arguments *args)
{
    struct value now = list_new(a);
    bool same;

    if (!d->loop)
        jinja_fail(a, ERR_INPUT, "changed is a method of a for loop's `loop`");
    for (int i = 0; i < args->n; i++)
        list_put(a, now.list, args->v[i]);
    same = d->loop->asked && value_equal(a, now, d->loop->last);
    d->loop->asked = true;
    d->loop->last = now;
    return value_bool(!same);
}

static struct value dict_method(struct arena *a, struct value self, struct str name,
                                const struct arguments *args)
{
    struct value out, *found, key = arguments_get(args, 0, NULL, value_none());

    if (str_is(name, "items"))
        return value_pairs(a, self);
    if (str_is(name, "keys")) {
        out = list_new(a);
        out.list = value_items(a, self);
        return out;
    }
    if (str_is(name, "values")) {
        out = list_new(a);
        for (size_t i = 0; i < self.dict->n; i++)
            list_put(a, out.list, self.dict->p[i].value);
        return out;
    }
    if (str_is(name, "get")) {
        found = dict_find(a, self.dict, value_text(a, key));
        return found ? *found : arguments_get(args, 1, "default", value_none());
    }
    if (str_is(name, "copy")) {
        out = dict_new(a);
        for (size_t i = 0; i < self.dict->n; i++)
            dict_put_named(a, out.dict, self.dict->p[i].name, self.dict->p[i].value);
        return out;
    }
    if (str_is(name, "cycle"))
        return cycle(a, self.dict, args);
    if (str_is(name, "changed"))
        return changed(a, self.dict, args);
    jinja_fail(a, ERR_INPUT, "the method '%.*s' of mappings is not supported",
               (int)(name.len < 40 ? name.len : 40), name.s);
}

static int64_t list_count(struct arena *a, const struct list *l, struct value v)
{
    int64_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += value_equal(a, l->v[i], v);
    return n;
}

static int64_t list_index(struct arena *a, const struct list *l, struct value v)
{
    for (size_t i = 0; i < l->n; i++)
        if (value_equal(a, l->v[i], v))
            return (int64_t)i;
    jinja_fail(a, ERR_INPUT, "index asks for what is not in the list");
}

bool method_known(struct value self, struct str name)
{
    static const char *const of_dicts[] = {"items",  "keys", "values", "get",        "pop",
                                           "update", "copy", "clear",  "setdefault", "popitem"},
                             *const of_lists[] = {"append", "index", "count",   "pop",
                                                  "insert", "sort",  "reverse", "copy",
                                                  "extend", "clear", "remove"};
    bool found = false;

    if (self.type == V_DICT && !self.dict->space && !self.dict->loop)
        for (size_t i = 0; i < sizeof of_dicts / sizeof *of_dicts; i++)
            found = found || str_is(name, of_dicts[i]);
    if (self.type == V_LIST)
        for (size_t i = 0; i < sizeof of_lists / sizeof *of_lists; i++)
            found = found || str_is(name, of_lists[i]);
    if (self.type == V_STRING)
        for (size_t i = 0; i < sizeof string_methods / sizeof *string_methods; i++)
            found = found || str_is(name, string_methods[i].name);
    return found;
}

struct value method_call(struct arena *a, struct value self, struct str name,
                         const struct arguments *args)
{
    jinja_charge(a, 0);
    if (self.type == V_STRING)
        return string_method(a, self.str, name, args);
    if (self.type == V_DICT)
        return dict_method(a, self, name, args);
    if (self.type == V_LIST && str_is(name, "count") && args->n == 1)
        return value_int(list_count(a, self.list, args->v[0]));
    if (self.type == V_LIST && str_is(name, "index") && args->n == 1)
        return value_int(list_index(a, self.list, args->v[0]));
    if (self.type == V_LIST && str_is(name, "append") && args->n == 1) {
        list_put(a, self.list, args->v[0]);
        return value_none();
    }
    jinja_fail(a, ERR_INPUT, "%s has no method '%.*s'", value_kind(self),
               (int)(name.len < 40 ? name.len : 40), name.s);
}
