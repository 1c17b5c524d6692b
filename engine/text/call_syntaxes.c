/* See call_syntaxes.h. */
#include "engine/text/call_syntaxes.h"

#include "engine/text/call_lex.h"
#include "engine/text/call_schema.h"

#include <string.h>

const struct call_syntax call_syntaxes[] = {
#define X(style, open, sep, close, key, between, value_end) \
    {style, open, sep, close, key, between, value_end},
    CALL_SYNTAXES(X)
#undef X
        {0}};

/* As JSON, or as a string. */
static json_t *untyped(const char *text, struct call_slice s)
{
    json_t *v = json_loadb(text + s.at, s.len, JSON_DECODE_ANY, NULL);

    return v ? v : json_stringn(text + s.at, s.len);
}

/* As one of the types allowed by the schema; Python's words are accepted too. */
static json_t *typed(const char *text, struct call_slice s, unsigned types)
{
    struct call_slice bare = lex_trimmed(text, s);
    size_t at = bare.at, end = bare.at + bare.len;
    json_t *v = json_loadb(text + bare.at, bare.len, JSON_DECODE_ANY, NULL);

    if (!v && (!lex_literal(text, &at, end, 0, &v) || at != end)) {
        json_decref(v);
        v = NULL;
    }
    if (v && (types & CALL_STRING ? !json_is_string(v) && call_schema_takes(types, v) : true))
        return v;
    json_decref(v);
    return json_stringn(text + s.at, s.len);
}

/* string="true">VALUE */
bool call_value_is_string(const char *text, const struct call_syntax *syntax, size_t at)
{
    if (!strchr(syntax->between, '='))
        return false;
    at -= at > 6 && text[at - 1] == '\n';
    return at > 6 && memcmp(text + at - 6, "true\">", 6) == 0;
}

json_t *call_value(const char *text, const struct call_syntax *syntax, struct call_slice s,
                   unsigned types)
{
    size_t at = s.at;
    json_t *v = NULL;

    if (syntax->style != CALL_XML)
        return lex_literal(text, &at, s.at + s.len, 0, &v) ? v : NULL;
    if (call_value_is_string(text, syntax, s.at))
        return json_stringn(text + s.at, s.len);
    return types ? typed(text, s, types) : untyped(text, s);
}
