/* Methods of strings and dicts in the Jinja subset. Masks go along with the text they cover. One thread a rendering. */
#include "engine/model/jinja_data.h"

#include <ctype.h>

static bool ends(struct arena *a, struct str s, struct value with, bool at_start)
{
    if (with.type == V_LIST) {
        for (size_t i = 0; i < with.list->n; i++)
            if (ends(a, s, value_str(value_need_string(a, with.list->v[i], "startswith")), at_start))
                return true;
        return false;
    }
    value_need_string(a, with, at_start ? "startswith" : "endswith");
    return with.str.len <= s.len && (with.str.len == 0 ||
           memcmp(at_start ? s.s : s.s + s.len - with.str.len, with.str.s, with.str.len) == 0);
}

static struct value string_method(struct arena *a, struct str s, struct str name, const struct arguments *args)
{
    struct value first = arguments_get(args, 0, NULL, (struct value){0}), second = arguments_get(args, 1, NULL, (struct value){0});
    struct str chars = first.type == V_STRING ? first.str : str_of("");
    struct value limit = arguments_get(args, 1, "maxsplit", value_int(-1));
    const char *hit;

    if (str_is(name, "strip"))
        return value_str(text_strip(a, s, chars, true, true));
    if (str_is(name, "lstrip"))
        return value_str(text_strip(a, s, chars, true, false));
    if (str_is(name, "rstrip"))
        return value_str(text_strip(a, s, chars, false, true));
    if (str_is(name, "upper"))
        return value_str(text_change_case(a, s, CASE_UPPER));
    if (str_is(name, "lower"))
        return value_str(text_change_case(a, s, CASE_LOWER));
    if (str_is(name, "title"))
        return value_str(text_change_case(a, s, CASE_TITLE));
    if (str_is(name, "capitalize"))
        return value_str(text_change_case(a, s, CASE_CAPITAL));
    if (str_is(name, "startswith") || str_is(name, "endswith"))
        return value_bool(ends(a, s, first, name.s[0] == 's'));
    if (str_is(name, "split"))
        return text_split(a, s, first, limit.type == V_INT ? limit.i : -1);
    if (str_is(name, "replace"))
        return value_str(text_replace(a, s, value_need_string(a, first, "replace"), value_need_string(a, second, "replace"),
                                 args->n > 2 && args->v[2].type == V_INT ? args->v[2].i : -1));
    if (str_is(name, "join"))
        return value_str(text_join(a, value_items(a, first), s));
    if (str_is(name, "find")) {
        jinja_charge(a, s.len);
        hit = memmem(s.s, s.len, chars.s, chars.len);
        return value_int(hit ? value_length(a, value_str(str_cut(s, 0, (size_t)(hit - s.s)))) : -1);
    }
    if (str_is(name, "isdigit") || str_is(name, "isalpha")) {
        bool all = s.len > 0;

        for (size_t i = 0; i < s.len; i++)
            all = all && (name.s[2] == 'd' ? isdigit((unsigned char)s.s[i]) : isalpha((unsigned char)s.s[i]));
        return value_bool(all);
    }
    jinja_fail(a, ERR_INPUT, "the method '%.*s' of strings is not supported", (int)name.len, name.s);
}

static struct value dict_method(struct arena *a, struct value self, struct str name, const struct arguments *args)
{
    struct value out, *found, key = arguments_get(args, 0, NULL, value_none());

    if (str_is(name, "items"))
        return value_pairs(a, self, false);
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
    if (str_is(name, "cycle") && args->n && (found = dict_find(a, self.dict, str_of("index0"))))       /* loop.cycle */
        return args->v[found->i % args->n];
    jinja_fail(a, ERR_INPUT, "the method '%.*s' of mappings is not supported", (int)name.len, name.s);
}

struct value method_call(struct arena *a, struct value self, struct str name, const struct arguments *args)
{
    jinja_charge(a, 0);
    if (self.type == V_STRING)
        return string_method(a, self.str, name, args);
    if (self.type == V_DICT)
        return dict_method(a, self, name, args);
    if (self.type == V_LIST && str_is(name, "append") && args->n == 1) {
        list_put(a, self.list, args->v[0]);
        return value_none();
    }
    jinja_fail(a, ERR_INPUT, "%s has no method '%.*s'", value_kind(self), (int)name.len, name.s);
}
