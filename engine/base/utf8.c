/* UTF-8 with utf8proc's tables. Pure functions, any thread. Decoding is our own: utf8proc's
 * iterator reports an error without the number of bytes in it, and the maximal-subpart rule
 * (Unicode 3.9, table 3-7) is what editors and browsers show. */
#include "engine/base/utf8.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

size_t utf8_decode_strict(const char *s, size_t n, uint32_t *cp, bool *valid)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned low = 0x80, high = 0xbf;
    size_t need;
    uint32_t c;

    *cp = UTF8_REPLACEMENT;
    *valid = false;
    if (n == 0)
        return 0;
    c = p[0];
    if (c < 0x80) {
        *cp = c;
        *valid = true;
        return 1;
    }
    if (c < 0xc2 || c > 0xf4)
        return 1;
    need = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    /* The second byte's range rules out overlong forms, surrogates and code points above U+10FFFF.
     */
    if (c == 0xe0)
        low = 0xa0;
    else if (c == 0xed)
        high = 0x9f;
    else if (c == 0xf0)
        low = 0x90;
    else if (c == 0xf4)
        high = 0x8f;
    c &= 0x3fu >> need;
    for (size_t i = 1; i <= need; i++) {
        if (i >= n || p[i] < low || p[i] > high)
            return i;
        c = c << 6 | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *cp = c;
    *valid = true;
    return need + 1;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    bool valid;

    return utf8_decode_strict(s, n, cp, &valid);
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        cp = UTF8_REPLACEMENT;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool utf8_valid(const char *s, size_t n)
{
    uint32_t cp;
    bool valid;

    for (size_t i = 0; i < n;) {
        i += utf8_decode_strict(s + i, n - i, &cp, &valid);
        if (!valid)
            return false;
    }
    return true;
}

size_t utf8_incomplete(const char *s, size_t n)
{
    uint32_t cp;
    bool valid;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

        if (c < 0x80)
            return 0;
        if (c < 0xc0)
            continue;
        /* a lead byte: incomplete if everything so far is valid and bytes are missing */
        return need > back && utf8_decode_strict(s + n - back, back, &cp, &valid) == back &&
                       c >= 0xc2 && c <= 0xf4
                   ? back
                   : 0;
    }
    return 0;
}

size_t utf8_cluster(const char *s, size_t n)
{
    uint32_t before, cp;
    utf8proc_int32_t state = 0;
    size_t at = utf8_decode(s, n, &before), len;

    while (at < n) {
        len = utf8_decode(s + at, n - at, &cp);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp,
                                             &state))
            break;
        at += len;
        before = cp;
    }
    return at;
}

int utf8_codepoint_width(uint32_t cp)
{
    int w = cp < 0x20 || (cp >= 0x7f && cp < 0xa0) ? 0
            : cp < 0x7f                            ? 1
                                                   : utf8proc_charwidth((utf8proc_int32_t)cp);

    return w < 0 ? 0 : w > 2 ? 2 : w;
}

int utf8_cluster_width(const char *s, size_t n)
{
    int width = 0, flags = 0;
    uint32_t cp;

    for (size_t i = 0; i < n;) {
        int w;

        i += utf8_decode(s + i, n - i, &cp);
        w = utf8_codepoint_width(cp);
        if (cp == 0xfe0f && width == 1) /* emoji presentation */
            w = 2;
        if (cp >= 0x1f1e6 && cp <= 0x1f1ff) /* a flag is two of them */
            w = ++flags;
        width = w > width ? w : width;
    }
    return width > 2 ? 2 : width;
}

size_t utf8_width(const char *s, size_t n)
{
    size_t total = 0;

    for (size_t i = 0; i < n;) {
        size_t len = utf8_cluster(s + i, n - i);

        total += (size_t)utf8_cluster_width(s + i, len);
        i += len;
    }
    return total;
}

size_t utf8_fit(const char *s, size_t n, size_t columns, size_t *used)
{
    size_t at = 0, taken = 0;

    while (at < n) {
        size_t len = utf8_cluster(s + at, n - at);
        size_t w = (size_t)utf8_cluster_width(s + at, len);

        if (taken + w > columns)
            break;
        taken += w;
        at += len;
    }
    if (used)
        *used = taken;
    return at;
}

size_t utf8_next(const char *s, size_t n, size_t at)
{
    return at >= n ? n : at + utf8_cluster(s + at, n - at);
}

/* Clusters can only be found forwards; starting at the beginning of the line keeps this exact, and
 * it is short for an input line. */
size_t utf8_previous(const char *s, size_t n, size_t at)
{
    size_t i = at > n ? n : at, last;

    if (i > 0)
        i--;
    while (i > 0 && s[i - 1] != '\n')
        i--;
    /* "\n" itself begins a cluster unless it follows a "\r" */
    if (i > 1 && s[i - 1] == '\n' && i == at)
        i--;
    last = i;
    while (i < at && i < n) {
        last = i;
        i += utf8_cluster(s + i, n - i);
    }
    return last;
}

bool utf8_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x61c || cp == 0x200e || cp == 0x200f ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x206f) || cp == 0xfeff ||
           (cp >= 0xfff9 && cp <= 0xfffb) || (cp >= 0xe0000 && cp <= 0xe007f);
}

/* Appends whole units only: after one does not fit, nothing more is written, while the needed size
 * is still counted. */
struct sink {
    char *out;
    size_t size, written, needed;
    bool full;
};

static void sink_put(struct sink *k, const char *text, size_t n)
{
    k->needed += n;
    if (k->full || k->written + n + 1 > k->size) {
        k->full = true;
        return;
    }
    memcpy(k->out + k->written, text, n);
    k->written += n;
}

static size_t sink_end(struct sink *k)
{
    if (k->size)
        k->out[k->written] = 0;
    return k->needed;
}

static bool kept(uint32_t cp, unsigned keep)
{
    return (cp == '\n' && (keep & UTF8_KEEP_NEWLINE)) || (cp == '\t' && (keep & UTF8_KEEP_TAB));
}

static void put_hex_byte(struct sink *k, unsigned byte)
{
    static const char digit[] = "0123456789abcdef";
    char text[4] = {'\\', 'x', digit[byte >> 4 & 15], digit[byte & 15]};

    sink_put(k, text, 4);
}

static void put_escaped(struct sink *k, uint32_t cp)
{
    static const char digit[] = "0123456789abcdef";
    char text[12] = "\\u{";
    int n = 3, shift = 20;

    switch (cp) {
    case '\n': sink_put(k, "\\n", 2); return;
    case '\t': sink_put(k, "\\t", 2); return;
    case '\r': sink_put(k, "\\r", 2); return;
    case 0x1b: sink_put(k, "\\e", 2); return;
    }
    if (cp < 0x100) {
        put_hex_byte(k, cp);
        return;
    }
    while (shift > 12 && !(cp >> shift))
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        text[n++] = digit[cp >> shift & 15];
    text[n++] = '}';
    sink_put(k, text, (size_t)n);
}

size_t utf8_escape(char *out, size_t size, const char *s, size_t n, unsigned keep)
{
    struct sink k = {.out = out, .size = size};

    assert(out || size == 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t len = utf8_decode_strict(s + i, n - i, &cp, &valid);

        if (!valid)
            for (size_t j = 0; j < len; j++)
                put_hex_byte(&k, (unsigned char)s[i + j]);
        else if (utf8_unsafe(cp) && !kept(cp, keep))
            put_escaped(&k, cp);
        else
            sink_put(&k, s + i, len);
        i += len;
    }
    return sink_end(&k);
}

size_t utf8_cap_marks(struct utf8_marks *m, char *s, size_t n)
{
    size_t out = 0;

    assert(m->run >= 0 && m->run <= UTF8_MARKS_MOST + 1);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = utf8_decode(s + i, n - i, &cp);
        bool mark = cp >= 0x20 && utf8_codepoint_width(cp) == 0;

        m->run = mark ? m->run + 1 : 0;
        if (m->run <= UTF8_MARKS_MOST) {
            memmove(s + out, s + i, len);
            out += len;
        } else {
            m->run = UTF8_MARKS_MOST + 1; /* further ones need not be counted */
        }
        i += len;
    }
    return out;
}

/* Length of the escape sequence that begins at s (ECMA-48 5.3, 5.4, 5.6), 0: none. An incomplete
 * one ends with the text, or, so that a lone introducer cannot swallow an answer, at a byte that
 * the sequence cannot contain. */
static size_t sequence(const char *s, size_t n)
{
    uint32_t cp;
    size_t i = utf8_decode(s, n, &cp);
    char kind;

    if (cp == 0x1b) {
        if (i >= n)
            return i;
        kind = s[i];
        if (kind >= 0x20 && kind <= 0x2f) { /* nF: intermediates, one final */
            while (i < n && s[i] >= 0x20 && s[i] <= 0x2f)
                i++;
            return i < n && s[i] >= 0x30 && s[i] <= 0x7e ? i + 1 : i;
        }
        if (kind < 0x30 || kind > 0x7e)
            return i;
        i++;
    } else if (cp >= 0x80 && cp < 0xa0)
        kind = (char)(cp - 0x40);
    else
        return 0;
    if (kind == '[') {
        while (i < n && s[i] >= 0x20 && s[i] <= 0x3f)
            i++;
        return i < n && s[i] >= 0x40 && s[i] <= 0x7e ? i + 1 : i;
    }
    if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_') {
        /* a string up to ST or BEL; ended by a newline */
        for (size_t len; i < n; i += len) {
            len = utf8_decode(s + i, n - i, &cp);
            if (cp == '\n' || cp == '\r')
                return i;
            if (cp == 7 || cp == 0x9c)
                return i + len;
            if (cp == 0x1b)
                return i + 1 < n && s[i + 1] == '\\' ? i + 2 : i;
        }
    }
    return i;
}

size_t utf8_strip(char *out, size_t size, const char *s, size_t n, unsigned keep)
{
    struct sink k = {.out = out, .size = size};

    assert(out || size == 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t len = utf8_decode_strict(s + i, n - i, &cp, &valid), skip;

        if (!valid) {
            sink_put(&k, "\xef\xbf\xbd", 3);
        } else if ((skip = sequence(s + i, n - i)) > 0) {
            len = skip;
        } else if (cp == '\r') {
            if ((keep & UTF8_KEEP_NEWLINE) && !(i + 1 < n && s[i + 1] == '\n'))
                sink_put(&k, "\n", 1);
        } else if (!utf8_unsafe(cp) || kept(cp, keep))
            sink_put(&k, s + i, len);
        i += len;
    }
    return sink_end(&k);
}
