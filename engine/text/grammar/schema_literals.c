/* See schema_parts.h. The values of enum and const, in each of JSON's spellings. */
#include "engine/text/grammar/schema_parts.h"

#include <stdlib.h>
#include <string.h>

/* A string, a number or a word as JSON writes it; -1. */
static int scalar(struct schema *s, const json_t *v)
{
    static const char short_forms[] = "btnfr", *const codes[] = {"8", "9", "Aa", "Cc", "Dd"};
    char *t = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    int out = build_empty(&s->build);

    if (!t)
        s->build.failed = true;
    for (const char *p = t; t && *p;) {
        size_t n = strcspn(p, "\\");
        const char *form = p[n] ? strchr(short_forms, p[n + 1]) : NULL;
        int one;

        out = seq(s, out, build_bytes(&s->build, p, n));
        if (p[n]) { /* an escape: literally, or by its code */
            one = build_bytes(&s->build, p + n, 2);
            for (const char *c = form ? codes[form - short_forms] : ""; *c; c++)
                one = alt(s, one, seq(s, text(s, "\\u000"), build_bytes(&s->build, c, 1)));
            out = seq(s, out, one);
            n += 2;
        }
        p += n;
    }
    free(t);
    return out;
}

int schema_literal(struct schema *s, const json_t *v)
{
    bool list = json_is_array(v);
    const json_t *part;
    const char *key;
    size_t i;
    int out;

    if (!list && !json_is_object(v))
        return scalar(s, v);
    out = seq(s, text(s, list ? "[" : "{"), blank(s));
    json_array_foreach(v, i, part)
    {
        out = seq(s, i ? seq(s, out, comma(s)) : out, schema_literal(s, part));
    }
    i = 0;
    json_object_foreach((json_t *)v, key, part)
    {
        json_t *name = json_string(key);
        int one = seq(s, seq(s, scalar(s, name), colon(s)), schema_literal(s, part));

        out = seq(s, i++ ? seq(s, out, comma(s)) : out, one);
        json_decref(name);
    }
    if (list ? json_array_size(v) : json_object_size(v))
        out = seq(s, out, blank(s));
    return seq(s, out, text(s, list ? "]" : "}"));
}
