/* See call_lex.h. */
#include "engine/text/call_lex.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 256
#define DEPTH_MAX 64

bool lex_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

size_t lex_blanks(const char *text, size_t at, size_t end)
{
    while (at < end && lex_one_of(text[at], LEX_BLANKS))
        at++;
    return at;
}

bool lex_stands(const char *text, size_t at, size_t end, const char *word)
{
    size_t n = strlen(word);

    return end - at >= n && memcmp(text + at, word, n) == 0;
}

/* Skips a word; false: it is not there. */
bool lex_pass(const char *text, size_t *at, size_t end, const char *word)
{
    if (!lex_stands(text, *at, end, word))
        return false;
    *at += strlen(word);
    return true;
}

/* The text before the next `word`, which is skipped. */
bool lex_until(const char *text, size_t *at, size_t end, const char *word, struct call_slice *out)
{
    const char *hit = memmem(text + *at, end - *at, word, strlen(word));

    if (!hit)
        return false;
    *out = (struct call_slice){*at, (size_t)(hit - text) - *at};
    *at = out->at + out->len + strlen(word);
    return true;
}

/* Identifiers, with the characters that servers and packages add. */
bool lex_is_name(const char *text, struct call_slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)text[s.at + i];

        if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c >= 0x80 ||
              lex_one_of((char)c, "_-.:/$@")))
            return false;
    }
    return s.len > 0 && s.len <= NAME_MAX_BYTES;
}

struct call_slice lex_trimmed(const char *text, struct call_slice s)
{
    for (; s.len && lex_one_of(text[s.at], LEX_BLANKS); s.at++)
        s.len--;
    while (s.len && lex_one_of(text[s.at + s.len - 1], LEX_BLANKS))
        s.len--;
    return s;
}

/* "functions.get:0", "get[CALL_ID]123": only the name. */
struct call_slice lex_bare_name(const char *text, struct call_slice s)
{
    struct call_slice cut;
    size_t at = s.at, n;

    if (lex_until(text, &at, s.at + s.len, "<|tool_call:name|>", &cut))
        s = (struct call_slice){at, s.at + s.len - at};
    if (lex_pass(text, &at, s.at + s.len, "[TOOL_CALLS]"))
        s = (struct call_slice){at, s.at + s.len - at};
    if (lex_until(text, &at, s.at + s.len, "[CALL_ID]", &cut))
        s = cut;
    s = lex_trimmed(text, s);
    at = s.at;
    if (lex_pass(text, &at, s.at + s.len, "functions."))
        s = (struct call_slice){at, s.at + s.len - at};
    for (n = s.len; n && text[s.at + n - 1] >= '0' && text[s.at + n - 1] <= '9'; n--)
        ;
    if (n > 1 && n < s.len && text[s.at + n - 1] == ':')
        s.len = n - 1;
    return s;
}

/* ---- JSON ---- */

/* End of the string whose first quote is text[at]. */
size_t lex_string_end(const char *text, size_t at, size_t end)
{
    for (at++; at < end && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < end ? at + 1 : end;
}

/* End of the value that begins at text[at], which is JSON. */
size_t lex_value_end(const char *text, size_t at, size_t end)
{
    int depth = 0;

    while (at < end) {
        char c = text[at];

        if (depth == 0 && lex_one_of(c, ",]}" LEX_BLANKS))
            break;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        at = c == '"' ? lex_string_end(text, at, end) : at + 1;
        if (depth == 0 && lex_one_of(c, "\"}]"))
            break;
    }
    return at;
}

/* The next value of an object or a list from *at on; false: no more. */
bool lex_next_value(const char *text, size_t *at, size_t end, struct call_slice *out)
{
    size_t from = lex_blanks(text, *at, end);

    if (from < end && lex_one_of(text[from], ",:"))
        from = lex_blanks(text, from + 1, end);
    *at = lex_value_end(text, from, end);
    *out = (struct call_slice){from, *at - from};
    return out->len > 0;
}

bool lex_is(const char *text, struct call_slice s, const char *word)
{
    return s.len == strlen(word) && memcmp(text + s.at, word, s.len) == 0;
}

/* ---- values of Python and Gemma ---- */

/* One escape after the backslash at text[*at]. */
void lex_escape(const char *text, size_t *at, size_t end, struct strbuf *b)
{
    static const char letters[] = "nrtbf0", means[] = "\n\r\t\b\f";
    char c = text[++*at], digits[5] = "", utf8[4];
    const char *known = lex_one_of(c, letters) ? strchr(letters, c) : NULL;
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

bool lex_quoted(const char *text, size_t *at, size_t end, json_t **out)
{
    struct strbuf b = {0};
    struct call_slice raw;
    char quote = text[*at];
    bool whole;

    if (lex_pass(text, at, end, LEX_QUOTE)) {
        whole = lex_until(text, at, end, LEX_QUOTE, &raw);
        if (whole)
            strbuf_put(&b, text + raw.at, raw.len);
    } else {
        for (++*at; *at < end && text[*at] != quote;)
            if (text[*at] == '\\' && *at + 1 < end)
                lex_escape(text, at, end, &b);
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
bool lex_key(const char *text, size_t *at, size_t end, char colon, struct call_slice *out)
{
    size_t from = *at = lex_blanks(text, *at, end);

    if (from < end && (lex_one_of(text[from], "\"'") || lex_stands(text, from, end, LEX_QUOTE))) {
        size_t frame = lex_stands(text, from, end, LEX_QUOTE) ? strlen(LEX_QUOTE) : 1;

        if (!lex_quoted(text, at, end, NULL))
            return false;
        *out = (struct call_slice){from + frame, *at - from - 2 * frame};
    } else {
        while (*at < end && text[*at] != colon && !lex_one_of(text[*at], ",{}[]()\"'<" LEX_BLANKS))
            ++*at;
        *out = (struct call_slice){from, *at - from};
        if (!out->len)
            return false;
    }
    *at = lex_blanks(text, *at, end);
    if (*at == end || text[*at] != colon)
        return false;
    ++*at;
    return true;
}

/* Takes value. */
bool lex_set_member(json_t *o, const char *text, struct call_slice key, json_t *value)
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
    for (*at = lex_blanks(text, *at, end); *at < end && text[*at] != close;
         *at = lex_blanks(text, *at, end)) {
        struct call_slice key = {0};
        json_t *value = NULL;

        if ((close == '}' && !lex_key(text, at, end, ':', &key)) ||
            !lex_literal(text, at, end, depth + 1, out ? &value : NULL))
            return false;
        if (out && !(close == '}' ? lex_set_member(out, text, key, value)
                                  : json_array_append_new(out, value) == 0))
            return false;
        *at = lex_blanks(text, *at, end);
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

    while (*at < end && !lex_one_of(text[*at], ",]})=:" LEX_BLANKS))
        ++*at;
    s.len = *at - s.at;
    spelled = text + s.at;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (lex_is(text, s, words[i].word)) {
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
bool lex_literal(const char *text, size_t *at, size_t end, int depth, json_t **out)
{
    json_t *v = NULL;
    char c;
    bool good;

    *at = lex_blanks(text, *at, end);
    if (*at == end || depth > DEPTH_MAX)
        return false;
    c = text[*at];
    if (lex_one_of(c, "\"'") || lex_stands(text, *at, end, LEX_QUOTE))
        return lex_quoted(text, at, end, out);
    if (!lex_one_of(c, "[({"))
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
