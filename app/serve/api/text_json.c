/* See text_json.h. */
#include "app/serve/api/text_json.h"

#include "engine/base/utf8.h"

json_t *text_json(const char *bytes, size_t n)
{
    struct strbuf b = {0};
    json_t *o;

    if (utf8_valid(bytes, n))
        return json_stringn(bytes, n);
    while (n) {
        uint32_t cp;
        char out[4];
        size_t used = utf8_decode(bytes, n, &cp);

        strbuf_put(&b, out, utf8_encode(cp, out));
        bytes += used;
        n -= used;
    }
    o = b.failed ? NULL : json_stringn(strbuf_text(&b), b.len);
    strbuf_release(&b);
    return o;
}

void text_json_put(struct strbuf *out, const char *bytes, size_t n)
{
    strbuf_putc(out, '"');
    while (n) {
        uint32_t cp;
        char c[4];
        size_t used = utf8_decode(bytes, n, &cp);

        if (cp == '"' || cp == '\\')
            strbuf_putc(out, '\\');
        if (cp < ' ')
            strbuf_printf(out, "\\u%04x", cp);
        else
            strbuf_put(out, c, utf8_encode(cp, c));
        bytes += used;
        n -= used;
    }
    strbuf_putc(out, '"');
}
