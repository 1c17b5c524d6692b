/* See mend.h. */
#include "app/connect/mend.h"

#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The value of an escape \uXXXX at s; -1: none. */
static int unit_at(const char *s, size_t n)
{
    char digits[5] = "";

    if (n < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    memcpy(digits, s + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (int)strtol(digits, NULL, 16) : -1;
}

static bool is_high(int unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(int unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

/* Copies an escape; returns its length in bytes. */
static size_t put_escape(struct strbuf *out, const char *s, size_t n)
{
    int unit = unit_at(s, n);
    size_t len = unit < 0 ? (n > 1 ? 2 : 1) : 6;

    if (is_high(unit) && is_low(unit_at(s + 6, n - 6)))
        len = 12;
    else if (is_high(unit) || is_low(unit)) {
        strbuf_puts(out, "\\ufffd");
        return len;
    }
    strbuf_put(out, s, len);
    return len;
}

static void put_character(struct strbuf *out, uint32_t cp)
{
    char bytes[4];

    strbuf_put(out, bytes, utf8_encode(cp, bytes));
}

/* The text in whole characters; escapes: what stands behind a backslash, too. */
static void put_mended(struct strbuf *out, const char *text, size_t n, bool escapes)
{
    while (n) {
        uint32_t cp;
        bool escape = escapes && *text == '\\';
        size_t len = escape ? put_escape(out, text, n) : utf8_decode(text, n, &cp);

        if (!escape)
            put_character(out, cp);
        text += len;
        n -= len;
    }
}

json_t *mend_string(const char *text)
{
    json_t *v = json_string(text);
    struct strbuf whole = {0};

    if (v)
        return v;
    put_mended(&whole, text, strlen(text), false);
    if (!whole.failed)
        v = json_stringn(strbuf_text(&whole), whole.len);
    strbuf_release(&whole);
    return v;
}

json_t *mend_read(const char *text, size_t n)
{
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    struct strbuf whole = {0};

    if (root)
        return root;
    put_mended(&whole, text, n, true);
    if (!whole.failed && whole.len)
        root = json_loadb(whole.data, whole.len, JSON_ALLOW_NUL, NULL);
    strbuf_release(&whole);
    return root;
}
