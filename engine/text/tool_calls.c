/* See tool_calls.h. What is walked here was read by jansson before: it is JSON. */
#include "engine/text/tool_calls.h"

#include <jansson.h>
#include <string.h>

#define BLANKS " \t\r\n"

static bool one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

static size_t skip_blanks(const char *text, size_t at, size_t end)
{
    while (at < end && one_of(text[at], BLANKS))
        at++;
    return at;
}

/* Behind the string whose first quote is text[at]. */
static size_t skip_string(const char *text, size_t at, size_t end)
{
    for (at++; at < end && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < end ? at + 1 : end;
}

/* Behind the value that begins at text[at]. */
static size_t skip_value(const char *text, size_t at, size_t end)
{
    int depth = 0;

    while (at < end) {
        char c = text[at];

        if (depth == 0 && one_of(c, ",]}" BLANKS))
            break;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        at = c == '"' ? skip_string(text, at, end) : at + 1;
        if (depth == 0 && one_of(c, "\"}]"))
            break;
    }
    return at;
}

/* The next value of an object or a list from *at on; false: it ends. */
static bool next_value(const char *text, size_t *at, size_t end, struct json_slice *out)
{
    size_t from = skip_blanks(text, *at, end);

    if (from < end && one_of(text[from], ",:"))
        from = skip_blanks(text, from + 1, end);
    *at = skip_value(text, from, end);
    *out = (struct json_slice){from, *at - from};
    return out->len > 0;
}

bool tool_call_member(const char *text, struct json_slice object, size_t *at,
                      struct json_slice *key, struct json_slice *value)
{
    size_t end = object.at + object.len;

    if (!object.len || text[object.at] != '{')
        return false;
    if (!*at)
        *at = object.at + 1;
    return next_value(text, at, end, key) && next_value(text, at, end, value);
}

static bool is(const char *text, struct json_slice s, const char *word)
{
    return s.len == strlen(word) && memcmp(text + s.at, word, s.len) == 0;
}

static bool read_call(const char *text, struct json_slice object, struct tool_call *out)
{
    struct json_slice key, value, parameters = {0};
    size_t at = 0;

    *out = (struct tool_call){0};
    while (tool_call_member(text, object, &at, &key, &value))
        if (is(text, key, "\"name\""))
            out->name = value;
        else if (is(text, key, "\"arguments\""))
            out->arguments = value;
        else if (is(text, key, "\"parameters\""))
            parameters = value;
    if (!out->arguments.len)
        out->arguments = parameters;
    return out->name.len && text[out->name.at] == '"' && out->arguments.len;
}

/* The calls of one value: an object, or a list of them. How many; 0: something else stands there.
 */
static int calls_of(const char *text, struct json_slice value, tool_call_take *take, void *ctx)
{
    size_t at = value.at + 1, end = value.at + value.len;
    struct json_slice object = value;
    bool list = text[value.at] == '[';
    struct tool_call call;
    int n = 0, rc;

    while (!list || next_value(text, &at, end, &object)) {
        if (!read_call(text, object, &call))
            return 0;
        if (take && (rc = take(ctx, text, &call)) < 0)
            return rc;
        n++;
        if (!list)
            break;
    }
    return n;
}

int tool_calls_each(const char *text, size_t from, size_t end, tool_call_take *take, void *ctx)
{
    int calls = 0, more;

    if (take && tool_calls_each(text, from, end, NULL, NULL) <= 0)
        return 0;
    for (size_t at = skip_blanks(text, from, end); at < end; at = skip_blanks(text, at, end)) {
        struct json_slice value = {at, 0};

        if (!take) { /* the first time */
            json_error_t where;
            json_t *v = json_loadb(text + at, end - at, JSON_DISABLE_EOF_CHECK, &where);

            json_decref(v);
            if (!v || where.position <= 0)
                return 0;
        }
        value.len = skip_value(text, at, end) - at;
        if ((more = calls_of(text, value, take, ctx)) <= 0)
            return more;
        calls += more;
        at += value.len;
    }
    return calls;
}
