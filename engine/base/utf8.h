/* UTF-8: validation, code points, grapheme clusters, display width, and making foreign text safe
 * for a terminal. Text from models, files, users and the clipboard is untrusted until it went
 * through utf8_escape or utf8_strip: escape sequences (C0 and C1), other control characters,
 * bidirectional controls and malformed bytes never reach a terminal raw. Pure functions, any
 * thread, no allocation; lengths are in bytes, NULs are ordinary. Width and clusters follow
 * utf8proc (Unicode's tables, UAX #29), not the C library's locale. */
#ifndef ENGINE_BASE_UTF8_H
#define ENGINE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu

/* First code point of s[0..n): its bytes (1..4) and *cp. Malformed or cut short: *cp = U+FFFD and
 * the length of the maximal ill-formed part (at least 1), so that a caller always advances. n = 0:
 * 0. */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp);
/* The same, distinguishing an ill-formed part from a real U+FFFD. */
size_t utf8_decode_strict(const char *s, size_t n, uint32_t *cp, bool *valid);
/* bytes written; not a scalar value: U+FFFD */
size_t utf8_encode(uint32_t cp, char out[4]);
bool utf8_valid(const char *s, size_t n);
/* Trailing bytes of s that are an incomplete sequence (0..3). */
size_t utf8_incomplete(const char *s, size_t n);

/* Bytes of the first grapheme cluster of s (0 only for n = 0). "\r\n" is one cluster. */
size_t utf8_cluster(const char *s, size_t n);
/* Columns a cluster takes: 0 (controls, lone marks), 1 or 2. */
int utf8_cluster_width(const char *s, size_t n);
int utf8_codepoint_width(uint32_t cp);
/* Columns of a whole text; controls count 0. */
size_t utf8_width(const char *s, size_t n);
/* Bytes of the longest run of whole clusters that takes at most `columns`; *used (may be NULL) gets
 * its columns. */
size_t utf8_fit(const char *s, size_t n, size_t columns, size_t *used);
/* Byte offsets for a cursor: the cluster boundary before / after `at`. */
size_t utf8_previous(const char *s, size_t n, size_t at);
size_t utf8_next(const char *s, size_t n, size_t at);

/* A code point that must not reach a terminal: C0, DEL, C1, bidirectional controls and marks, line
 * and paragraph separators, interlinear and tag characters, byte order mark. \n and \t count as
 * such. ZWJ, ZWNJ and variation selectors do not. */
bool utf8_unsafe(uint32_t cp);

enum { UTF8_KEEP_NEWLINE = 1, UTF8_KEEP_TAB = 2 };

/* Writes s to out with every unsafe code point and malformed byte made visible: \n \t \r \e \xNN
 * (bytes below 0x100 and malformed ones) \u{202e}. A backslash stays as it is: this is for reading,
 * not for parsing back. Stateless, so pieces of a stream may be escaped one by one, provided code
 * points are whole. Like snprintf: returns the bytes the whole result needs without its NUL, writes
 * at most size - 1 of them, never half a code point or half an escape. */
size_t utf8_escape(char *out, size_t size, const char *s, size_t n, unsigned keep);
/* A stream's combining marks and zero-width code points, counted since the newest visible one. */
struct utf8_marks {
    int run;
};
#define UTF8_MARKS_MOST 16 /* on one base character: more than any script writes */
/* Removes those beyond UTF8_MARKS_MOST from s, in place; returns the new length. Pieces of a stream
 * may be passed one by one, provided code points are whole. A flood of them would overload a
 * terminal. */
size_t utf8_cap_marks(struct utf8_marks *m, char *s, size_t n);
/* Same, but removes: whole escape sequences (CSI, OSC, DCS, SOS, PM, APC, two-byte; with ESC or C1
 * introducers) and unsafe code points vanish, malformed parts become U+FFFD, "\r\n" and lone "\r"
 * become "\n" when newlines are kept. */
size_t utf8_strip(char *out, size_t size, const char *s, size_t n, unsigned keep);

#endif
