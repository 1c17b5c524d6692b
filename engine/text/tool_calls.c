/* See tool_calls.h. Every style has a parser of one call and one of a call's next argument. */
#include "engine/text/tool_calls.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/text/call_schema.h"
#include "engine/text/call_syntaxes.h"

#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"
#define NAME_MAX_BYTES 256
#define DEPTH_MAX 64
#define ARG_VALUE "<arg_value>"
#define QUOTE "<|\"|>" /* Gemma's */

struct call_syntax {
    enum call_style style;
    const char *open, *sep, *close, *key, *between, *value_end;
};

static const struct call_syntax syntaxes[] = {
#define X(style, open, sep, close, key, between, value_end) \
    {style, open, sep, close, key, between, value_end},
    CALL_SYNTAXES(X)
#undef X
};

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

static bool stands(const char *text, size_t at, size_t end, const char *word)
{
    size_t n = strlen(word);

    return end - at >= n && memcmp(text + at, word, n) == 0;
}

/* Skips a word; false: it is not there. */
static bool pass(const char *text, size_t *at, size_t end, const char *word)
{
    if (!stands(text, *at, end, word))
        return false;
    *at += strlen(word);
    return true;
}

/* The text before the next `word`, which is skipped. */
static bool until(const char *text, size_t *at, size_t end, const char *word,
                  struct call_slice *out)
{
    const char *hit = memmem(text + *at, end - *at, word, strlen(word));

    if (!hit)
        return false;
    *out = (struct call_slice){*at, (size_t)(hit - text) - *at};
    *at = out->at + out->len + strlen(word);
    return true;
}

/* Identifiers, with the characters that servers and packages add. */
static bool is_name(const char *text, struct call_slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)text[s.at + i];

        if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c >= 0x80 ||
              one_of((char)c, "_-.:/$@")))
            return false;
    }
    return s.len > 0 && s.len <= NAME_MAX_BYTES;
}

static struct call_slice trimmed(const char *text, struct call_slice s)
{
    for (; s.len && one_of(text[s.at], BLANKS); s.at++)
        s.len--;
    while (s.len && one_of(text[s.at + s.len - 1], BLANKS))
        s.len--;
    return s;
}

/* "functions.get:0", "get[CALL_ID]123": only the name. */
static struct call_slice bare_name(const char *text, struct call_slice s)
{
    struct call_slice cut;
    size_t at = s.at, n;

    if (pass(text, &at, s.at + s.len, "[TOOL_CALLS]"))
        s = (struct call_slice){at, s.at + s.len - at};
    if (until(text, &at, s.at + s.len, "[CALL_ID]", &cut))
        s = cut;
    s = trimmed(text, s);
    at = s.at;
    if (pass(text, &at, s.at + s.len, "functions."))
        s = (struct call_slice){at, s.at + s.len - at};
    for (n = s.len; n && text[s.at + n - 1] >= '0' && text[s.at + n - 1] <= '9'; n--)
        ;
    if (n > 1 && n < s.len && text[s.at + n - 1] == ':')
        s.len = n - 1;
    return s;
}

/* ---- JSON ---- */

/* End of the string whose first quote is text[at]. */
static size_t skip_string(const char *text, size_t at, size_t end)
{
    for (at++; at < end && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < end ? at + 1 : end;
}

/* End of the value that begins at text[at], which is JSON. */
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

/* The next value of an object or a list from *at on; false: no more. */
static bool next_value(const char *text, size_t *at, size_t end, struct call_slice *out)
{
    size_t from = skip_blanks(text, *at, end);

    if (from < end && one_of(text[from], ",:"))
        from = skip_blanks(text, from + 1, end);
    *at = skip_value(text, from, end);
    *out = (struct call_slice){from, *at - from};
    return out->len > 0;
}

static bool next_pair(const char *text, struct call_slice object, size_t *at,
                      struct call_slice *key, struct call_slice *value)
{
    size_t end = object.at + object.len;

    if (!object.len || text[object.at] != '{')
        return false;
    if (!*at)
        *at = object.at + 1;
    return next_value(text, at, end, key) && next_value(text, at, end, value);
}

static bool is(const char *text, struct call_slice s, const char *word)
{
    return s.len == strlen(word) && memcmp(text + s.at, word, s.len) == 0;
}

static bool read_object(const char *text, struct call_slice object, struct tool_call *out)
{
    struct call_slice key, value, parameters = {0};
    size_t at = 0;

    out->name = out->arguments = (struct call_slice){0};
    while (next_pair(text, object, &at, &key, &value))
        if (is(text, key, "\"name\"") || is(text, key, "\"tool_name\""))
            out->name = value;
        else if (is(text, key, "\"arguments\""))
            out->arguments = value;
        else if (is(text, key, "\"parameters\""))
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
    *out = (struct call_slice){*at, skip_value(text, *at, end) - *at};
    *at += out->len;
    return true;
}

/* ---- values of Python and Gemma ---- */

static bool literal(const char *text, size_t *at, size_t end, int depth, json_t **out);

/* One escape after the backslash at text[*at]. */
static void escape(const char *text, size_t *at, size_t end, struct strbuf *b)
{
    static const char letters[] = "nrtbf0", means[] = "\n\r\t\b\f";
    char c = text[++*at], digits[5] = "", utf8[4];
    const char *known = one_of(c, letters) ? strchr(letters, c) : NULL;
    size_t n = c == 'u' ? 4 : c == 'x' ? 2 : 0;
    char *stop;
    unsigned long cp;

    ++*at;
    if (known) {
        strbuf_putc(b, means[known - letters]);
        return;
    }
    if (n && end - *at >= n) {
        memcpy(digits, text + *at, n);
        cp = strtoul(digits, &stop, 16);
        if (!*stop && stop == digits + n) {
            *at += n;
            strbuf_put(b, utf8, utf8_encode((uint32_t)cp, utf8));
            return;
        }
    }
    strbuf_putc(b, c);
}

static bool quoted(const char *text, size_t *at, size_t end, json_t **out)
{
    struct strbuf b = {0};
    struct call_slice raw;
    char quote = text[*at];
    bool whole;

    if (pass(text, at, end, QUOTE)) {
        whole = until(text, at, end, QUOTE, &raw);
        if (whole)
            strbuf_put(&b, text + raw.at, raw.len);
    } else {
        for (++*at; *at < end && text[*at] != quote;)
            if (text[*at] == '\\' && *at + 1 < end)
                escape(text, at, end, &b);
            else
                strbuf_putc(&b, text[(*at)++]);
        whole = *at < end;
        ++*at;
    }
    if (whole && out)
        *out = json_stringn(strbuf_text(&b), b.len);
    strbuf_release(&b);
    return whole && (!out || *out);
}

/* A key before `colon`, bare or quoted. */
static bool key_at(const char *text, size_t *at, size_t end, char colon, struct call_slice *out)
{
    size_t from = *at = skip_blanks(text, *at, end);

    if (from < end && (one_of(text[from], "\"'") || stands(text, from, end, QUOTE))) {
        size_t frame = stands(text, from, end, QUOTE) ? strlen(QUOTE) : 1;

        if (!quoted(text, at, end, NULL))
            return false;
        *out = (struct call_slice){from + frame, *at - from - 2 * frame};
    } else {
        while (*at < end && text[*at] != colon && !one_of(text[*at], ",{}[]()\"'<" BLANKS))
            ++*at;
        *out = (struct call_slice){from, *at - from};
        if (!out->len)
            return false;
    }
    *at = skip_blanks(text, *at, end);
    if (*at == end || text[*at] != colon)
        return false;
    ++*at;
    return true;
}

/* Takes value. */
static bool set_member(json_t *o, const char *text, struct call_slice key, json_t *value)
{
    char *name = mem_string_n(text + key.at, key.len);
    bool good = name && value && json_object_set(o, name, value) == 0;

    mem_free(name);
    json_decref(value);
    return good;
}

/* Members or values up to the closing bracket; *at is after the opening one. */
static bool sequence(const char *text, size_t *at, size_t end, char close, int depth, json_t *out)
{
    for (*at = skip_blanks(text, *at, end); *at < end && text[*at] != close;
         *at = skip_blanks(text, *at, end)) {
        struct call_slice key = {0};
        json_t *value = NULL;

        if ((close == '}' && !key_at(text, at, end, ':', &key)) ||
            !literal(text, at, end, depth + 1, out ? &value : NULL))
            return false;
        if (out && !(close == '}' ? set_member(out, text, key, value)
                                  : json_array_append_new(out, value) == 0))
            return false;
        *at = skip_blanks(text, *at, end);
        if (*at < end && text[*at] == ',')
            ++*at;
        else if (*at < end && text[*at] != close)
            return false;
    }
    return *at < end ? (++*at, true) : false;
}

/* A number, or a word for a value. */
static bool word(const char *text, size_t *at, size_t end, json_t **out)
{
    static const struct {
        const char *word, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct call_slice s = {*at, 0};
    const char *spelled;
    json_t *v;

    while (*at < end && !one_of(text[*at], ",]})=:" BLANKS))
        ++*at;
    s.len = *at - s.at;
    spelled = text + s.at;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is(text, s, words[i].word)) {
            spelled = words[i].json;
            s.len = strlen(spelled);
        }
    v = s.len ? json_loadb(spelled, s.len, JSON_DECODE_ANY, NULL) : NULL;
    if (v && out)
        *out = v;
    else
        json_decref(v);
    return v != NULL;
}

/* A value in Python's or Gemma's syntax; out (may be NULL) gets it. */
static bool literal(const char *text, size_t *at, size_t end, int depth, json_t **out)
{
    json_t *v = NULL;
    char c;
    bool good;

    *at = skip_blanks(text, *at, end);
    if (*at == end || depth > DEPTH_MAX)
        return false;
    c = text[*at];
    if (one_of(c, "\"'") || stands(text, *at, end, QUOTE))
        return quoted(text, at, end, out);
    if (!one_of(c, "[({"))
        return word(text, at, end, out);
    if (out && !(v = c == '{' ? json_object() : json_array()))
        return false;
    ++*at;
    good = sequence(text, at, end, c == '[' ? ']' : c == '(' ? ')' : '}', depth, v);
    if (good && out)
        *out = v;
    else
        json_decref(v);
    return good;
}

/* ---- one call ---- */

static bool read_named(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                       bool checked, struct tool_call *out)
{
    if (!pass(text, at, end, s->open) || !until(text, at, end, s->sep, &out->name))
        return false;
    out->name = bare_name(text, out->name);
    *at = skip_blanks(text, *at, end);
    if (!is_name(text, out->name) || *at == end || text[*at] != '{' ||
        !json_at(text, at, end, checked, &out->arguments))
        return false;
    if (*s->close != '\n')
        *at = skip_blanks(text, *at, end);
    return pass(text, at, end, s->close);
}

/* The next argument of XML; false: none. */
static bool xml_member(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                       struct call_slice *key, struct call_slice *value)
{
    struct call_slice attribute;

    *at = skip_blanks(text, *at, end);
    if (!pass(text, at, end, s->key) || !until(text, at, end, s->between, key))
        return false;
    *key = trimmed(text, *key);
    if (strcmp(s->between, "</arg_key>") == 0) {
        *at = skip_blanks(text, *at, end);
        if (!pass(text, at, end, ARG_VALUE))
            return false;
    } else if (one_of(s->between[strlen(s->between) - 1], "\"") &&
               !until(text, at, end, ">", &attribute)) /* string="true"> */
        return false;
    if (!until(text, at, end, s->value_end, value))
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

    if (!pass(text, at, end, s->open))
        return false;
    if (*s->sep) {
        if (!until(text, at, end, s->sep, &out->name))
            return false;
    } else { /* up to the first argument or the end of the line */
        for (from = *at; *at < end && text[*at] != '\n' && !stands(text, *at, end, s->key);)
            ++*at;
        out->name = (struct call_slice){from, *at - from};
    }
    out->name = bare_name(text, out->name);
    if (!is_name(text, out->name))
        return false;
    from = stop = *at;
    while (xml_member(s, text, at, end, &key, &value))
        stop = *at;
    out->arguments = (struct call_slice){from, stop - from};
    *at = skip_blanks(text, stop, end);
    return pass(text, at, end, s->close);
}

/* The next argument of Python's calls and Gemma's. */
static bool literal_member(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                           struct call_slice *key, struct call_slice *value)
{
    *at = skip_blanks(text, *at, end);
    if (*at < end && text[*at] == ',')
        ++*at;
    if (skip_blanks(text, *at, end) == end || !key_at(text, at, end, *s->between, key))
        return false;
    *at = skip_blanks(text, *at, end);
    value->at = *at;
    if (!literal(text, at, end, 0, NULL))
        return false;
    value->len = *at - value->at;
    return true;
}

static bool read_literals(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                          struct tool_call *out)
{
    struct call_slice key, value;
    size_t from, stop;

    if (!until(text, at, end, s->sep, &out->name))
        return false;
    out->name = bare_name(text, out->name);
    if (!is_name(text, out->name))
        return false;
    from = stop = *at;
    for (; (*at = skip_blanks(text, *at, end)) < end && text[*at] != *s->close; stop = *at)
        if (!literal_member(s, text, at, end, &key, &value))
            return false;
    out->arguments = (struct call_slice){from, stop - from};
    *at = skip_blanks(text, stop, end);
    if (*at < end && text[*at] == ',')
        *at = skip_blanks(text, *at + 1, end);
    return pass(text, at, end, s->close);
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

    while (!list || next_value(r->text, &at, end, &object)) {
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

    if (!pass(r->text, at, end, r->syntax->open))
        return 0;
    do {
        *at = skip_blanks(r->text, *at, end);
        if (!read_literals(r->syntax, r->text, at, end, &call))
            return 0;
        if ((rc = found(r, &call)) < 0)
            return rc;
        *at = skip_blanks(r->text, *at, end);
    } while (pass(r->text, at, end, ","));
    return pass(r->text, at, end, "]");
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
        good = pass(r->text, at, end, s->open) && read_literals(s, r->text, at, end, &call);
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
    for (size_t at = skip_blanks(r->text, from, end); at < end; at = skip_blanks(r->text, at, end))
        if ((rc = next_calls(r, &at, end)) <= 0)
            return rc;
    return r->calls;
}

int tool_calls_each(const char *text, size_t from, size_t end, tool_call_take *take, void *ctx)
{
    int calls;

    for (size_t i = 0; i < sizeof syntaxes / sizeof *syntaxes; i++) {
        struct reading r = {&syntaxes[i], text, NULL, ctx, 0};

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

/* As JSON, or as a string. */
static json_t *untyped(const char *text, struct call_slice s)
{
    json_t *v = json_loadb(text + s.at, s.len, JSON_DECODE_ANY, NULL);

    return v ? v : json_stringn(text + s.at, s.len);
}

/* As one of the types allowed by the schema; Python's words are accepted too. */
static json_t *typed(const char *text, struct call_slice s, unsigned types)
{
    struct call_slice bare = trimmed(text, s);
    size_t at = bare.at, end = bare.at + bare.len;
    json_t *v = json_loadb(text + bare.at, bare.len, JSON_DECODE_ANY, NULL);

    if (!v && (!literal(text, &at, end, 0, &v) || at != end)) {
        json_decref(v);
        v = NULL;
    }
    if (v && (types & CALL_STRING ? !json_is_string(v) && call_schema_takes(types, v) : true))
        return v;
    json_decref(v);
    return json_stringn(text + s.at, s.len);
}

/* A value as written, in any syntax; types: enum call_type, 0: unknown. */
static json_t *value_of(const char *text, const struct tool_call *call, struct call_slice s,
                        unsigned types)
{
    size_t at = s.at;
    json_t *v = NULL;

    if (call->syntax->style != CALL_XML)
        return literal(text, &at, s.at + s.len, 0, &v) ? v : NULL;
    /* string="true">VALUE */
    if (strchr(call->syntax->between, '=')) {
        at = s.at > 6 && text[s.at - 1] == '\n' ? s.at - 1 : s.at;
        if (at > 6 && memcmp(text + at - 6, "true\">", 6) == 0)
            return json_stringn(text + s.at, s.len);
    }
    return types ? typed(text, s, types) : untyped(text, s);
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

        if (!set_member(o, text, key, value_of(text, call, value, types))) {
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
