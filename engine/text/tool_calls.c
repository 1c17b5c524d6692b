/* See tool_calls.h. Every style has a parser of one call and one of a call's next argument. */
#include "engine/text/tool_calls.h"

#include "engine/base/mem.h"
#include "engine/text/call_lex.h"
#include "engine/text/call_schema.h"
#include "engine/text/call_syntaxes.h"

#include <stdlib.h>
#include <string.h>

/* ---- one call ---- */

static bool next_pair(const char *text, struct call_slice object, size_t *at,
                      struct call_slice *key, struct call_slice *value)
{
    size_t end = object.at + object.len;

    if (!object.len || text[object.at] != '{')
        return false;
    if (!*at)
        *at = object.at + 1;
    return lex_next_value(text, at, end, key) && lex_next_value(text, at, end, value);
}

static bool read_object(const char *text, struct call_slice object, struct tool_call *out)
{
    struct call_slice key, value, parameters = {0};
    size_t at = 0;

    out->name = out->arguments = (struct call_slice){0};
    while (next_pair(text, object, &at, &key, &value))
        if (lex_is(text, key, "\"name\"") || lex_is(text, key, "\"tool_name\""))
            out->name = value;
        else if (lex_is(text, key, "\"arguments\""))
            out->arguments = value;
        else if (lex_is(text, key, "\"parameters\""))
            parameters = value;
    if (!out->arguments.len)
        out->arguments = parameters;
    if (out->name.len < 2 || text[out->name.at] != '"' || !out->arguments.len)
        return false;
    out->name.at++;
    out->name.len -= 2;
    return true;
}

/* The JSON value at *at; false: none. checked: it was parsed before. */
static bool json_at(const char *text, size_t *at, size_t end, bool checked, struct call_slice *out)
{
    if (!checked) {
        json_error_t where;
        json_t *v = json_loadb(text + *at, end - *at, JSON_DISABLE_EOF_CHECK, &where);

        json_decref(v);
        if (!v || where.position <= 0)
            return false;
    }
    *out = (struct call_slice){*at, lex_value_end(text, *at, end) - *at};
    *at += out->len;
    return true;
}

static bool read_named(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                       bool checked, struct tool_call *out)
{
    if (!lex_pass(text, at, end, s->open) || !lex_until(text, at, end, s->sep, &out->name))
        return false;
    out->name = lex_bare_name(text, out->name);
    *at = lex_blanks(text, *at, end);
    if (!lex_is_name(text, out->name) || *at == end || text[*at] != '{' ||
        !json_at(text, at, end, checked, &out->arguments))
        return false;
    if (*s->close != '\n')
        *at = lex_blanks(text, *at, end);
    return lex_pass(text, at, end, s->close);
}

/* The next argument of XML; false: none. */
static bool xml_member(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                       struct call_slice *key, struct call_slice *value)
{
    struct call_slice attribute;

    *at = lex_blanks(text, *at, end);
    if (!lex_pass(text, at, end, s->key) || !lex_until(text, at, end, s->between, key))
        return false;
    *key = lex_trimmed(text, *key);
    if (strstr(s->between, LEX_ARG_KEY)) {
        *at = lex_blanks(text, *at, end);
        /* </arg_value> without its slash */
        if (!lex_pass(text, at, end, "<") || !lex_pass(text, at, end, s->value_end + 2))
            return false;
    } else if (lex_one_of(s->between[strlen(s->between) - 1], "\"") &&
               !lex_until(text, at, end, ">", &attribute)) /* string="true"> */
        return false;
    if (!lex_until(text, at, end, s->value_end, value))
        return false;
    /* on a separate line */
    if (value->len && text[value->at] == '\n') {
        value->at++;
        value->len--;
    }
    value->len -= value->len && text[value->at + value->len - 1] == '\n';
    return true;
}

static bool read_xml(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                     struct tool_call *out)
{
    struct call_slice key, value;
    size_t from, stop;

    if (!lex_pass(text, at, end, s->open))
        return false;
    if (*s->sep) {
        if (!lex_until(text, at, end, s->sep, &out->name))
            return false;
    } else { /* up to the first argument or the end of the line */
        for (from = *at; *at < end && text[*at] != '\n' && !lex_stands(text, *at, end, s->key);)
            ++*at;
        out->name = (struct call_slice){from, *at - from};
    }
    out->name = lex_bare_name(text, out->name);
    if (!lex_is_name(text, out->name))
        return false;
    from = stop = *at;
    while (xml_member(s, text, at, end, &key, &value))
        stop = *at;
    out->arguments = (struct call_slice){from, stop - from};
    *at = lex_blanks(text, stop, end);
    return lex_pass(text, at, end, s->close);
}

/* The next argument of Python's calls and Gemma's. */
static bool literal_member(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                           struct call_slice *key, struct call_slice *value)
{
    *at = lex_blanks(text, *at, end);
    if (*at < end && text[*at] == ',')
        ++*at;
    if (lex_blanks(text, *at, end) == end || !lex_key(text, at, end, *s->between, key))
        return false;
    *at = lex_blanks(text, *at, end);
    value->at = *at;
    if (!lex_literal(text, at, end, 0, NULL))
        return false;
    value->len = *at - value->at;
    return true;
}

static bool read_literals(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                          struct tool_call *out)
{
    struct call_slice key, value;
    size_t from, stop;

    if (!lex_until(text, at, end, s->sep, &out->name))
        return false;
    out->name = lex_bare_name(text, out->name);
    if (!lex_is_name(text, out->name))
        return false;
    from = stop = *at;
    for (; (*at = lex_blanks(text, *at, end)) < end && text[*at] != *s->close; stop = *at)
        if (!literal_member(s, text, at, end, &key, &value))
            return false;
    out->arguments = (struct call_slice){from, stop - from};
    *at = lex_blanks(text, stop, end);
    if (*at < end && text[*at] == ',')
        *at = lex_blanks(text, *at + 1, end);
    return lex_pass(text, at, end, s->close);
}

/* ---- all calls ---- */

struct reading {
    const struct call_syntax *syntax;
    const char *text;
    tool_call_take *take; /* NULL: the first pass, which checks the calls */
    void *ctx;
    int calls;
};

static int found(struct reading *r, const struct tool_call *call)
{
    r->calls++;
    return r->take ? r->take(r->ctx, r->text, call) : 0;
}

/* The calls of one JSON value: an object, or a list of them. 1: parsed. */
static int json_calls(struct reading *r, struct call_slice value)
{
    size_t at = value.at + 1, end = value.at + value.len;
    struct call_slice object = value;
    bool list = r->text[value.at] == '[';
    struct tool_call call = {.syntax = r->syntax};
    int rc, n = 0;

    while (!list || lex_next_value(r->text, &at, end, &object)) {
        if (!read_object(r->text, object, &call))
            return 0;
        if ((rc = found(r, &call)) < 0)
            return rc;
        n++;
        if (!list)
            break;
    }
    return n > 0;
}

/* [f(a=1), g()] */
static int python_calls(struct reading *r, size_t *at, size_t end)
{
    struct tool_call call = {.syntax = r->syntax};
    int rc;

    if (!lex_pass(r->text, at, end, r->syntax->open))
        return 0;
    do {
        *at = lex_blanks(r->text, *at, end);
        if (!read_literals(r->syntax, r->text, at, end, &call))
            return 0;
        if ((rc = found(r, &call)) < 0)
            return rc;
        *at = lex_blanks(r->text, *at, end);
    } while (lex_pass(r->text, at, end, ","));
    return lex_pass(r->text, at, end, "]");
}

/* Parses calls at *at: 1: calls; 0: something else. */
static int next_calls(struct reading *r, size_t *at, size_t end)
{
    const struct call_syntax *s = r->syntax;
    struct tool_call call = {.syntax = s};
    struct call_slice value;
    bool good = false;
    int rc;

    switch (s->style) {
    case CALL_JSON:
        return json_at(r->text, at, end, r->take != NULL, &value) ? json_calls(r, value) : 0;
    case CALL_PYTHON: return python_calls(r, at, end);
    case CALL_NAMED: good = read_named(s, r->text, at, end, r->take != NULL, &call); break;
    case CALL_XML: good = read_xml(s, r->text, at, end, &call); break;
    case CALL_BRACED:
        good = lex_pass(r->text, at, end, s->open) && read_literals(s, r->text, at, end, &call);
        break;
    }
    if (!good)
        return 0;
    rc = found(r, &call);
    return rc < 0 ? rc : 1;
}

static int read_all(struct reading *r, size_t from, size_t end)
{
    int rc;

    r->calls = 0;
    for (size_t at = lex_blanks(r->text, from, end); at < end; at = lex_blanks(r->text, at, end))
        if ((rc = next_calls(r, &at, end)) <= 0)
            return rc;
    return r->calls;
}

int tool_calls_each(const char *text, size_t from, size_t end, tool_call_take *take, void *ctx)
{
    int calls;

    for (const struct call_syntax *s = call_syntaxes; s->open; s++) {
        struct reading r = {s, text, NULL, ctx, 0};

        if ((calls = read_all(&r, from, end)) > 0) {
            r.take = take;
            return take ? read_all(&r, from, end) : calls;
        }
    }
    return 0;
}

/* ---- results ---- */

bool tool_call_member(const char *text, const struct tool_call *call, size_t *at,
                      struct call_slice *key, struct call_slice *value)
{
    const struct call_syntax *s = call->syntax;
    size_t end = call->arguments.at + call->arguments.len;

    switch (s->style) {
    case CALL_JSON:
    case CALL_NAMED:
        if (!next_pair(text, call->arguments, at, key, value))
            return false;
        *key = (struct call_slice){key->at + 1, key->len - 2};
        return true;
    case CALL_XML:
        *at = *at ? *at : call->arguments.at;
        return xml_member(s, text, at, end, key, value);
    case CALL_PYTHON:
    case CALL_BRACED:
        *at = *at ? *at : call->arguments.at;
        return literal_member(s, text, at, end, key, value);
    }
    return false;
}

bool tool_call_has_members(const char *text, const struct tool_call *call)
{
    return call->syntax->style != CALL_JSON || text[call->arguments.at] == '{';
}

json_t *tool_call_name(const char *text, const struct tool_call *call)
{
    struct call_slice s = call->name;

    if (call->syntax->style == CALL_JSON) /* with its quotes, because of its escapes */
        return json_loadb(text + s.at - 1, s.len + 2, JSON_DECODE_ANY, NULL);
    return json_stringn(text + s.at, s.len);
}

json_t *tool_call_arguments(const char *text, const struct tool_call *call,
                            const json_t *parameters)
{
    enum call_style style = call->syntax->style;
    struct call_slice key, value;
    size_t at = 0;
    json_t *o;

    if (style == CALL_JSON || style == CALL_NAMED)
        return json_loadb(text + call->arguments.at, call->arguments.len, JSON_DECODE_ANY, NULL);
    o = json_object();
    while (o && tool_call_member(text, call, &at, &key, &value)) {
        unsigned types = call_schema_types(parameters, text + key.at, key.len);

        if (!lex_set_member(o, text, key, call_value(text, call->syntax, value, types))) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

char *tool_call_arguments_text(const char *text, const struct tool_call *call,
                               const json_t *parameters)
{
    enum call_style style = call->syntax->style;
    json_t *v;
    char *dumped, *out;

    if ((style == CALL_JSON || style == CALL_NAMED) && text[call->arguments.at] == '{')
        return mem_string_n(text + call->arguments.at, call->arguments.len);
    if (!(v = tool_call_arguments(text, call, parameters)))
        return NULL;
    /* some write them as a string of JSON; null means none */
    dumped = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);
    out = json_is_string(v) ? mem_string(json_string_value(v))
          : json_is_null(v) ? mem_string("{}")
          : dumped          ? mem_string(dumped)
                            : NULL;
    free(dumped); /* jansson's own */
    json_decref(v);
    return out;
}
