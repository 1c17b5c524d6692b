/* See call_stream.h. Each step reads one thing from c->at on, or waits for more text. */
#include "engine/text/call_stream.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/call_lex.h"
#include "engine/text/call_schema.h"
#include "engine/text/call_syntaxes.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_MOST ((size_t)4096)        /* bytes of a head, or of a key */
#define LITERAL_MOST ((size_t)64 << 10) /* of a value that is parsed again with each piece */

/* What is known of something that is being written. */
enum match { NO, MAYBE, YES };

struct source {
    struct call_stream *c;
    const char *text;
    size_t end;
    const struct call_stream_sink *sink;
};

/* Where a head ends. */
struct head {
    struct call_slice name; /* JSON: with its quotes */
    size_t at;
};

static enum match match(const char *text, size_t *at, size_t end, const char *word)
{
    size_t n = strlen(word), have = end - *at < n ? end - *at : n;

    if (memcmp(text + *at, word, have) != 0)
        return NO;
    *at += have;
    return have == n ? YES : MAYBE;
}

/* ---- heads: up to where the arguments begin ---- */

/* Skips a value of JSON; false: it may go on. */
static bool skip_value(const char *text, size_t *at, size_t end)
{
    *at = lex_value_end(text, *at, end);
    return *at < end;
}

/* {"name": "f", "arguments": { */
static enum match head_json(const char *text, size_t at, size_t end, struct head *out)
{
    enum match m = match(text, &at, end, "{");

    while (m == YES) {
        struct call_slice key;
        size_t from = at = lex_blanks(text, at, end);

        if (at < end && text[at] == ',')
            from = at = lex_blanks(text, at + 1, end);
        if (at < end && text[at] != '"')
            return NO;
        if (at == end || !skip_value(text, &at, end))
            return MAYBE;
        key = (struct call_slice){from, at - from};
        at = lex_blanks(text, at, end);
        if (at < end && text[at] != ':')
            return NO;
        at = at < end ? lex_blanks(text, at + 1, end) : end;
        if (at == end)
            return MAYBE;
        out->at = from = at;
        if (lex_is(text, key, "\"arguments\"") || lex_is(text, key, "\"parameters\""))
            return text[at] == '{' && out->name.len ? YES : NO;
        if (!skip_value(text, &at, end))
            return MAYBE;
        if (lex_is(text, key, "\"name\"") || lex_is(text, key, "\"tool_name\""))
            out->name = (struct call_slice){from, at - from};
        if (out->name.len && text[out->name.at] != '"')
            return NO;
    }
    return m;
}

/* Whether the text may be a name up to `sep`, with what servers put around it. */
static enum match may_be_name(const char *text, size_t at, size_t end, const char *sep)
{
    size_t from = at = lex_blanks(text, at, end);
    struct call_slice id;

    if (match(text, &at, end, "[TOOL_CALLS]") == NO)
        at = from;
    while (at < end && text[at] != '[' && lex_is_name(text, (struct call_slice){at, 1}))
        at++;
    at = lex_blanks(text, at, end);
    from = at;
    if (match(text, &at, end, "[CALL_ID]") == YES)
        return lex_until(text, &at, end, sep, &id) ? YES : MAYBE;
    at = from;
    return match(text, &at, end, sep) == NO && (at = from, match(text, &at, end, "[CALL_ID]") == NO)
               ? NO
               : MAYBE;
}

/* open NAME sep; *at behind it. */
static enum match head_name(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                            struct call_slice *name)
{
    enum match m = match(text, at, end, s->open);

    if (m != YES)
        return m;
    if (!*s->open && may_be_name(text, *at, end, s->sep) == NO)
        return NO;
    if (!lex_until(text, at, end, s->sep, name))
        return MAYBE;
    *name = lex_bare_name(text, *name);
    return lex_is_name(text, *name) ? YES : NO;
}

static enum match head_named(const struct call_syntax *s, const char *text, size_t at, size_t end,
                             struct head *out)
{
    enum match m = head_name(s, text, &at, end, &out->name);

    if (m != YES)
        return m;
    out->at = at = lex_blanks(text, at, end);
    return at == end ? MAYBE : text[at] == '{' ? YES : NO;
}

/* GLM's and LongCat's: a name up to its first argument, whose key has a tag, or the end of the
 * line.
 */
static enum match head_line(const struct call_syntax *s, const char *text, size_t *at, size_t end,
                            struct call_slice *name)
{
    size_t from = *at, tag;
    enum match m;

    while (*at < end && text[*at] != '\n' && text[*at] != '<')
        ++*at;
    if (*at == end)
        return MAYBE;
    tag = *at;
    if (text[tag] == '<' && (m = match(text, &tag, end, s->key)) != YES)
        return m;
    *name = lex_bare_name(text, (struct call_slice){from, *at - from});
    return lex_is_name(text, *name) ? YES : NO;
}

/* GLM's and LongCat's may be a name alone; at the beginning any line could be one. */
static enum match head_xml(const struct call_syntax *s, bool first, const char *text, size_t at,
                           size_t end, struct head *out)
{
    enum match m = *s->sep ? head_name(s, text, &at, end, &out->name)
                           : head_line(s, text, &at, end, &out->name);
    size_t from;

    if (m != YES)
        return m;
    out->at = from = at = lex_blanks(text, at, end);
    if ((m = match(text, &at, end, s->key)) != NO)
        return m;
    if (!*s->close)
        return first ? NO : YES;
    return match(text, &from, end, s->close);
}

/* Python's and Gemma's. */
static enum match head_literals(const struct call_syntax *s, bool first, const char *text,
                                size_t at, size_t end, struct head *out)
{
    enum match m = first || s->style == CALL_BRACED ? match(text, &at, end, s->open) : YES;
    size_t from;

    if (m != YES)
        return m;
    from = at = lex_blanks(text, at, end);
    while (at < end && lex_is_name(text, (struct call_slice){at, 1}))
        at++;
    out->name = lex_bare_name(text, (struct call_slice){from, at - from});
    at = lex_blanks(text, at, end);
    if (at == end)
        return MAYBE;
    out->at = at + 1;
    return text[at] == *s->sep && lex_is_name(text, out->name) ? YES : NO;
}

static enum match head_of(const struct call_syntax *s, bool first, const char *text, size_t at,
                          size_t end, struct head *out)
{
    *out = (struct head){0};
    switch (s->style) {
    case CALL_JSON:
        if (first && at < end && text[at] == '[')
            at = lex_blanks(text, at + 1, end);
        return head_json(text, at, end, out);
    case CALL_NAMED: return head_named(s, text, at, end, out);
    case CALL_XML: return head_xml(s, first, text, at, end, out);
    case CALL_PYTHON:
    case CALL_BRACED: return head_literals(s, first, text, at, end, out);
    }
    return NO;
}

/* ---- handing on ---- */

static bool lose(struct source *s)
{
    s->c->state = CALL_STREAM_LOST;
    return false;
}

static void put(const struct source *s, const char *json, size_t n)
{
    if (n)
        s->sink->arguments(s->sink->ctx, json, n);
}

/* v as JSON; without its quotes if bare. Takes v. */
static bool put_value(struct source *s, json_t *v, bool bare)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

    json_decref(v);
    if (!text)
        return lose(s);
    put(s, text + bare, strlen(text) - 2 * bare);
    free(text); /* allocated by jansson */
    return true;
}

/* Text of a string, up to an incomplete character, which is not skipped: *n. */
static bool put_text(struct source *s, const char *text, size_t *n)
{
    *n -= utf8_incomplete(text, *n);
    return !*n || put_value(s, json_stringn(text, *n), true);
}

static void end_call(struct source *s)
{
    s->c->open = false;
    s->c->state = CALL_STREAM_HEAD;
    s->sink->end(s->sink->ctx);
}

static bool begin_call(struct source *s, const struct head *h)
{
    struct call_stream *c = s->c;
    bool json = c->syntax->style == CALL_JSON;
    const char *at = s->text + h->name.at;
    json_t *name = json ? json_loadb(at, h->name.len, JSON_DECODE_ANY, NULL)
                        : json_stringn(at, h->name.len);

    c->parameters = NULL;
    c->open = name && s->sink->begin(s->sink->ctx, json_string_value(name), &c->parameters);
    json_decref(name);
    if (!c->open)
        return lose(s);
    c->at = h->at;
    c->some = false;
    c->json = (struct json_prefix){0};
    c->state = json || c->syntax->style == CALL_NAMED ? CALL_STREAM_JSON : CALL_STREAM_MEMBERS;
    return true;
}

/* ---- steps: true: something was read; false: more text is needed, or the call is lost ---- */

static bool read_head(struct source *s)
{
    struct call_stream *c = s->c;
    const struct call_syntax *row = c->syntax ? c->syntax : call_syntaxes;
    bool first = !c->syntax;
    struct head h;
    enum match m = NO;

    c->at = lex_blanks(s->text, c->at, s->end);
    if (!first && c->at < s->end && lex_one_of(s->text[c->at], ",]") &&
        (row->style == CALL_JSON || row->style == CALL_PYTHON))
        c->at = lex_blanks(s->text, c->at + 1, s->end);
    if (c->at == s->end)
        return false;
    for (; row->open && m == NO; row += m == NO) {
        m = head_of(row, first, s->text, c->at, s->end, &h);
        if (!first)
            break;
    }
    if (m == NO || (m == MAYBE && s->end - c->at > HEAD_MOST))
        return lose(s);
    if (m == MAYBE)
        return false;
    c->syntax = row;
    return begin_call(s, &h);
}

static bool read_json(struct source *s)
{
    struct call_stream *c = s->c;
    size_t from = c->at, end = s->end - utf8_incomplete(s->text + from, s->end - from);
    bool good = true;

    while (good && c->at < end && !json_prefix_over(&c->json)) {
        good = json_prefix_push(&c->json, s->text[c->at]);
        c->at += good;
    }
    put(s, s->text + from, c->at - from);
    if (!good)
        return lose(s);
    if (!json_prefix_over(&c->json))
        return false;
    c->state = CALL_STREAM_TAIL;
    return true;
}

/* The rest of the object around the arguments. */
static bool read_object_tail(struct source *s)
{
    struct call_stream *c = s->c;
    size_t at = c->at;

    for (; at < s->end && s->text[at] != '}'; at++)
        if (!lex_one_of(s->text[at], ",:" LEX_BLANKS)) {
            at = lex_value_end(s->text, at, s->end);
            if (at == s->end || s->text[at] == ']')
                return false;
            at--;
        }
    if (at == s->end)
        return false;
    c->at = at + 1;
    end_call(s);
    return true;
}

static bool read_tail(struct source *s)
{
    struct call_stream *c = s->c;
    size_t at = c->at;
    enum match m;

    if (c->syntax->style == CALL_JSON)
        return read_object_tail(s);
    if (*c->syntax->close != '\n')
        at = lex_blanks(s->text, at, s->end);
    m = match(s->text, &at, s->end, c->syntax->close);
    if (m == NO)
        return lose(s);
    if (m == MAYBE)
        return false;
    c->at = at;
    end_call(s);
    return true;
}

static bool close_members(struct source *s, size_t at)
{
    s->c->at = at;
    put(s, s->c->some ? "}" : "{}", s->c->some ? 1 : 2);
    end_call(s);
    return true;
}

/* A key, and the colon behind it. */
static bool put_key(struct source *s, struct call_slice key)
{
    struct call_stream *c = s->c;

    put(s, c->some ? ", " : "{", c->some ? 2 : 1);
    c->some = true;
    c->types = call_schema_types(c->parameters, s->text + key.at, key.len);
    if (!put_value(s, json_stringn(s->text + key.at, key.len), false))
        return false;
    put(s, ": ", 2);
    return true;
}

/* NO: there is no key; *at behind all that precedes the value. */
static enum match xml_key(const struct source *s, size_t *at, struct call_slice *key)
{
    const struct call_syntax *x = s->c->syntax;
    struct call_slice attribute;
    enum match m = match(s->text, at, s->end, x->key);

    if (m != YES)
        return m;
    if (!lex_until(s->text, at, s->end, x->between, key))
        return MAYBE;
    *key = lex_trimmed(s->text, *key);
    if (strstr(x->between, LEX_ARG_KEY)) {
        *at = lex_blanks(s->text, *at, s->end);
        m = match(s->text, at, s->end, "<");
        return m != YES ? m : match(s->text, at, s->end, x->value_end + 2);
    }
    if (x->between[strlen(x->between) - 1] == '"') /* string="true"> */
        return lex_until(s->text, at, s->end, ">", &attribute) ? YES : MAYBE;
    return YES;
}

static bool read_xml_member(struct source *s)
{
    struct call_stream *c = s->c;
    size_t from = lex_blanks(s->text, c->at, s->end), at = from;
    struct call_slice key;
    enum match m = xml_key(s, &at, &key);

    /* the value's first byte may be a line end that is not part of it */
    if (m == MAYBE || (m == YES && at == s->end))
        return s->end - from > HEAD_MOST ? lose(s) : false;
    if (m == NO) {
        m = match(s->text, &from, s->end, c->syntax->close);
        return m == YES ? close_members(s, from) : m == NO ? lose(s) : false;
    }
    c->at = c->seen = at + (s->text[at] == '\n');
    if (!put_key(s, key))
        return false;
    c->state = c->types == CALL_STRING || call_value_is_string(s->text, c->syntax, c->at)
                   ? CALL_STREAM_TEXT
                   : CALL_STREAM_VALUE;
    if (c->state == CALL_STREAM_TEXT)
        put(s, "\"", 1);
    return true;
}

/* The start of the string's end; false: it is not there yet. */
static bool xml_end(struct source *s, size_t *at)
{
    struct call_stream *c = s->c;
    const char *word = c->syntax->value_end, *hit;
    size_t n = strlen(word);

    hit = memmem(s->text + c->seen, s->end - c->seen, word, n);
    if (!hit) {
        c->seen = s->end - c->seen >= n ? s->end - n + 1 : c->seen;
        return false;
    }
    *at = (size_t)(hit - s->text);
    return true;
}

/* A value without the line end before its end. */
static struct call_slice xml_slice(const struct source *s, size_t end)
{
    size_t at = s->c->at;

    return (struct call_slice){at, end - at - (end > at && s->text[end - 1] == '\n')};
}

static bool read_xml_text(struct source *s)
{
    struct call_stream *c = s->c;
    size_t end, n;
    bool over = xml_end(s, &end);

    if (over) {
        n = xml_slice(s, end).len;
        if (!put_text(s, s->text + c->at, &n))
            return false;
        put(s, "\"", 1);
        c->at = end + strlen(c->syntax->value_end);
        c->state = CALL_STREAM_MEMBERS;
        return true;
    }
    end = s->end - strlen(c->syntax->value_end); /* the start of its end, and a line end */
    if (s->end < strlen(c->syntax->value_end) || end <= c->at)
        return false;
    n = end - c->at;
    if (put_text(s, s->text + c->at, &n))
        c->at += n;
    return false;
}

static bool read_xml_value(struct source *s)
{
    struct call_stream *c = s->c;
    size_t end;

    if (!xml_end(s, &end))
        return false;
    if (!put_value(s, call_value(s->text, c->syntax, xml_slice(s, end), c->types), false))
        return false;
    c->at = end + strlen(c->syntax->value_end);
    c->state = CALL_STREAM_MEMBERS;
    return true;
}

/* Python's and Gemma's: the next key, or the end of the call. */
static bool read_literal_member(struct source *s)
{
    struct call_stream *c = s->c;
    size_t from = lex_blanks(s->text, c->at, s->end), at;
    struct call_slice key;
    enum match gemma;

    if (from < s->end && s->text[from] == ',')
        from = lex_blanks(s->text, from + 1, s->end);
    if (from < s->end && s->text[from] == *c->syntax->close)
        return close_members(s, from + 1);
    at = from;
    if (!lex_key(s->text, &at, s->end, *c->syntax->between, &key) ||
        (at = lex_blanks(s->text, at, s->end)) == s->end)
        return s->end - from > HEAD_MOST ? lose(s) : false;
    from = at;
    gemma = match(s->text, &at, s->end, LEX_QUOTE);
    if (gemma == MAYBE)
        return false;
    c->at = from;
    if (!put_key(s, key))
        return false;
    c->state = CALL_STREAM_VALUE;
    if (gemma == YES || lex_one_of(s->text[from], "\"'")) {
        c->quote = gemma == YES ? 0 : s->text[from];
        c->at = gemma == YES ? at : from + 1;
        c->state = CALL_STREAM_QUOTED;
        put(s, "\"", 1);
    }
    return true;
}

/* A value other than a string; its end is certain when something follows it. */
static bool read_literal_value(struct source *s)
{
    struct call_stream *c = s->c;
    size_t at = c->at;
    json_t *v = NULL;

    if (!lex_literal(s->text, &at, s->end, 0, &v) || at == s->end) {
        json_decref(v);
        return s->end - c->at > LITERAL_MOST ? lose(s) : false;
    }
    if (!put_value(s, v, false))
        return false;
    c->at = at;
    c->state = CALL_STREAM_MEMBERS;
    return true;
}

/* Whether all of the escape at the backslash is there. */
static bool escape_whole(const struct source *s, size_t at)
{
    char c = at + 1 < s->end ? s->text[at + 1] : 0;

    return s->end - at >= (c == 'u' ? 6u : c == 'x' ? 4u : 2u);
}

/* Decodes a string up to its end, or as far as it is whole; true: to its end. */
static bool decode(struct source *s, struct strbuf *out)
{
    struct call_stream *c = s->c;
    enum match end = NO;
    size_t at;

    for (; c->at < s->end; c->at++) {
        char byte = s->text[c->at];

        at = c->at;
        if (!c->quote && (end = match(s->text, &at, s->end, LEX_QUOTE)) != NO) {
            c->at = end == YES ? at : c->at;
            return end == YES;
        }
        if (c->quote && byte == c->quote)
            return c->at++, true;
        if (c->quote && byte == '\\') {
            if (!escape_whole(s, c->at))
                return false;
            lex_escape(s->text, &c->at, s->end, out);
            c->at--;
        } else {
            if (s->end - c->at == utf8_incomplete(s->text + c->at, s->end - c->at))
                return false;
            strbuf_putc(out, byte);
        }
    }
    return false;
}

static bool read_quoted(struct source *s)
{
    struct strbuf b = {0};
    bool over = decode(s, &b), good = !b.failed;
    size_t n = b.len;

    if (good && n)
        good = put_value(s, json_stringn(b.data, n), true);
    else if (!good)
        lose(s);
    strbuf_release(&b);
    if (!good || !over)
        return false;
    put(s, "\"", 1);
    s->c->state = CALL_STREAM_MEMBERS;
    return true;
}

static bool step(struct source *s)
{
    bool xml = s->c->syntax && s->c->syntax->style == CALL_XML;

    switch (s->c->state) {
    case CALL_STREAM_HEAD: return read_head(s);
    case CALL_STREAM_JSON: return read_json(s);
    case CALL_STREAM_TAIL: return read_tail(s);
    case CALL_STREAM_MEMBERS: return xml ? read_xml_member(s) : read_literal_member(s);
    case CALL_STREAM_VALUE: return xml ? read_xml_value(s) : read_literal_value(s);
    case CALL_STREAM_TEXT: return read_xml_text(s);
    case CALL_STREAM_QUOTED: return read_quoted(s);
    case CALL_STREAM_LOST: break;
    }
    return false;
}

void call_stream_read(struct call_stream *c, const char *text, size_t n,
                      const struct call_stream_sink *sink)
{
    struct source s = {c, text, n, sink};

    while (step(&s))
        ;
}
