/* See text_json.h. */
#include "app/serve/text_json.h"

#include "engine/base/strbuf.h"
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
    o = b.failed ? NULL : json_stringn(b.data ? b.data : "", b.len);
    strbuf_release(&b);
    return o;
}
