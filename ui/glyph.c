/* See glyph.h. Clusters and widths are those of engine/base/utf8.h: the C library's wcwidth knows
 * single code points only and counts a family emoji as eight cells. */
#include "ui/glyph.h"
#include "engine/base/utf8.h"

#include <assert.h>
#include <stdbool.h>

/* Code points of the cluster up to the first unsafe one: for Unicode a bidi control extends a
 * cluster, here it ends it. */
static size_t safe_part(const char *s, size_t len, int *points)
{
    size_t at = 0;

    for (*points = 0; at < len; ++*points) {
        uint32_t cp;
        bool valid;
        size_t n = utf8_decode_strict(s + at, len - at, &cp, &valid);

        if (at > 0 && (!valid || utf8_unsafe(cp)))
            break;
        at += n;
    }
    return at;
}

struct glyph glyph_next(const char *s, size_t len)
{
    struct glyph g = {.kind = GLYPH_SHOWN, .bytes = 1, .width = 1};
    unsigned char b = (unsigned char)s[0];
    uint32_t first;
    bool valid;
    int points;
    size_t n;

    assert(s && len > 0);
    /* Plain ASCII followed by ASCII has no combining marks: the fast path for nearly all text. */
    if (b >= 0x20 && b < 0x7f && (len == 1 || (unsigned char)s[1] < 0x80)) {
        g.ch = b;
        return g;
    }
    n = utf8_decode_strict(s, len, &first, &valid);
    g.bytes = (int)n;
    if (!valid) {
        g.ch = UTF8_REPLACEMENT;
        return g;
    }
    g.width = 0;
    if (first == '\n' || first == '\r' || first == 0x2028 || first == 0x2029) {
        g.kind = GLYPH_NEWLINE;
        g.bytes += first == '\r' && len > 1 && s[1] == '\n';
        return g;
    }
    if (first == '\t') {
        g.kind = GLYPH_TAB;
        return g;
    }
    if (first < 0x20 || (first >= 0x7f && first < 0xa0)) {
        g.ch = first < 0x20 ? 0x2400 + first : first == 0x7f ? 0x2421 : UTF8_REPLACEMENT;
        g.width = 1;
        return g;
    }
    if (utf8_unsafe(first) || first == 0xad) {
        g.kind = GLYPH_HIDDEN;
        return g;
    }
    n = safe_part(s, utf8_cluster(s, len), &points);
    g.bytes = (int)n;
    g.width = utf8_cluster_width(s, n);
    if (g.width == 0) {
        g.kind = GLYPH_HIDDEN;
        return g;
    }
    if (points == 1) {
        g.ch = first;
        return g;
    }
    g.text = s;
    g.len = (int)(n < GLYPH_BYTES ? n : GLYPH_BYTES);
    while (g.len < (int)n && (s[g.len] & 0xc0) == 0x80)
        g.len--;
    return g;
}

int glyph_text_width(const char *s, size_t len)
{
    int width = 0;

    while (len) {
        struct glyph g = glyph_next(s, len);

        width += g.kind == GLYPH_SHOWN ? g.width : g.kind == GLYPH_HIDDEN ? 0 : 1;
        s += g.bytes;
        len -= (size_t)g.bytes;
    }
    return width;
}

size_t glyph_encode(uint32_t ch, char out[4])
{
    return utf8_encode(ch, out);
}
