/* Sanitises text for the screen: grapheme clusters, their width in cells, and removal of what must
 * not reach a terminal. Everything that is drawn goes through glyph_next, so a model, a file name
 * or a pasted text cannot send an escape sequence, a C1 control, a bidi override or half a code
 * point. Pure functions, any thread. */
#ifndef UI_GLYPH_H
#define UI_GLYPH_H

#include <stddef.h>
#include <stdint.h>

#define GLYPH_BYTES 40 /* longest cluster drawn; further marks are dropped */

enum glyph_kind {
    GLYPH_SHOWN,   /* text or its replacement, width 1 or 2 */
    GLYPH_HIDDEN,  /* takes no cell: zero-width and bidi controls, byte order marks */
    GLYPH_NEWLINE, /* \n, \r\n, U+2028, U+2029 */
    GLYPH_TAB,
};

struct glyph {
    enum glyph_kind kind;
    int bytes;        /* of the source it consumes, at least 1 */
    int width;        /* cells: 0, 1, 2 */
    uint32_t ch;      /* its only code point, or 0: draw text[0 .. len-1] */
    const char *text; /* into the source; only when ch is 0 */
    int len;
};

/* The next cluster of len > 0 bytes. Control characters become control pictures, invalid bytes
 * U+FFFD. */
struct glyph glyph_next(const char *s, size_t len);
/* cells of a one-line text as canvas_text draws it */
int glyph_text_width(const char *s, size_t len);
size_t glyph_encode(uint32_t ch, char out[4]); /* UTF-8; returns the length */

#endif
