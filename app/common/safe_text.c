/* See safe_text.h. */
#include "app/common/safe_text.h"

#define PIECE 256 /* bytes, of which each becomes at most eight */

bool safe_text_put(FILE *out, bool tty, struct utf8_marks *marks, const char *text, size_t n)
{
    char safe[8 * PIECE];

    if (!tty)
        return fwrite(text, 1, n, out) == n;
    for (size_t at = 0; at < n;) {
        size_t part = n - at < PIECE ? n - at : PIECE, len;

        while (part > 1 && at + part < n && ((unsigned char)text[at + part] & 0xc0) == 0x80)
            part--; /* not inside a code point */
        len = utf8_escape(safe, sizeof safe, text + at, part, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
        len = utf8_cap_marks(marks, safe, len);
        if (fwrite(safe, 1, len, out) != len)
            return false;
        at += part;
    }
    return true;
}
