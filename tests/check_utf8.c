/* engine/base/utf8: decoding, clusters, widths, and what makes foreign text safe. */
#include "engine/base/utf8.h"
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>

/* What is expected of one scalar value; false at the first thing that is not so. Check's own
 * asserts write a record each: millions of them took longer than the decoding. */
static bool decodes(uint32_t cp)
{
    char s[4];
    uint32_t back;
    bool valid;
    size_t n = utf8_encode(cp, s);

    if (utf8_decode_strict(s, n, &back, &valid) != n || !valid || back != cp ||
        utf8_incomplete(s, n) != 0)
        return false;
    /* cut short: never valid, always advances, and known as unfinished */
    for (size_t k = 1; k < n; k++)
        if (utf8_decode_strict(s, k, &back, &valid) != k || valid || back != UTF8_REPLACEMENT ||
            utf8_incomplete(s, k) != k)
            return false;
    return true;
}

START_TEST(decodes_every_scalar_value)
{
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++)
        if ((cp < 0xd800 || cp > 0xdfff) && !decodes(cp))
            ck_abort_msg("U+%04X", (unsigned)cp);
}
END_TEST

static const struct {
    const char *text;
    size_t n, first;
} malformed[] = {
    {"\x80", 1, 1},
    {"\xc0\xaf", 2, 1},
    {"\xc1\xbf", 2, 1},
    {"\xe0\x80\xaf", 3, 1},
    {"\xed\xa0\x80", 3, 1},
    {"\xf4\x90\x80\x80", 4, 1},
    {"\xf5\x80\x80\x80", 4, 1},
    {"\xff", 1, 1},
    {"\xe1\x80"
     "a",
     3, 2},
    {"\xf0\x9f\x98"
     "a",
     4, 3},
    {"\xc3(", 2, 1},
};

START_TEST(malformed_parts_are_maximal)
{
    uint32_t cp;
    bool valid;

    ck_assert_uint_eq(utf8_decode_strict(malformed[_i].text, malformed[_i].n, &cp, &valid),
                      malformed[_i].first);
    ck_assert(!valid);
    ck_assert(!utf8_valid(malformed[_i].text, malformed[_i].n));
}
END_TEST

START_TEST(encode_replaces_what_is_no_scalar)
{
    char s[4];

    ck_assert_uint_eq(utf8_encode(0xd800, s), 3);
    ck_assert_mem_eq(s, "\xef\xbf\xbd", 3);
    ck_assert_uint_eq(utf8_encode(0x110000, s), 3);
    ck_assert(utf8_valid("", 0) && utf8_valid("a\0b", 3));
    ck_assert_uint_eq(utf8_incomplete("", 0), 0);
    ck_assert_uint_eq(utf8_incomplete("a\x80", 2), 0);
    /* overlong: nothing can complete it */
    ck_assert_uint_eq(utf8_incomplete("\xe0\x80", 2), 0);
    ck_assert_uint_eq(utf8_incomplete("ab\xf0\x9f", 4), 2);
}
END_TEST

static const struct {
    const char *text;
    size_t bytes;
    int width;
} clusters[] = {
    {"a", 1, 1},
    {"e\u0301x", 3, 1},
    {"你好", 3, 2},
    {"\U0001f642!", 4, 2},
    {"\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", 25, 2},
    {"\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", 8, 2},
    {"\u2764\ufe0f.", 6, 2},
    {"\r\nx", 2, 0},
    {"\x1b[m", 1, 0},
    {"\u200bx", 3, 0},
    {"\u1100\u1161\u11a8z", 9, 2}, /* conjoining jamo */
};

START_TEST(clusters_and_their_width)
{
    size_t n = strlen(clusters[_i].text);

    ck_assert_uint_eq(utf8_cluster(clusters[_i].text, n), clusters[_i].bytes);
    ck_assert_int_eq(utf8_cluster_width(clusters[_i].text, clusters[_i].bytes), clusters[_i].width);
}
END_TEST

START_TEST(fitting_never_cuts_a_cluster)
{
    const char *s = "ab你e\u0301\U0001f642";
    size_t used, n = strlen(s);

    ck_assert_uint_eq(utf8_width(s, n), 7);
    ck_assert_uint_eq(utf8_fit(s, n, 3, &used), 2);
    ck_assert_uint_eq(used, 2);
    ck_assert_uint_eq(utf8_fit(s, n, 4, &used), 5);
    ck_assert_uint_eq(utf8_fit(s, n, 5, &used), 8);
    ck_assert_uint_eq(utf8_fit(s, n, 6, &used), 8);
    ck_assert_uint_eq(utf8_fit(s, n, 100, &used), n);
    ck_assert_uint_eq(used, 7);
}
END_TEST

START_TEST(cursor_steps_agree_both_ways)
{
    static const char *const texts[] = {
        "ab\n\ncd\r\ne\u0301\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\n", "\r\n\r\n", "你\xff好",
        ""};

    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        const char *s = texts[t];
        size_t n = strlen(s), starts[64], k = 0;

        for (size_t i = 0; i < n; i = utf8_next(s, n, i))
            starts[k++] = i;
        for (size_t i = n; k > 0; i = starts[k])
            ck_assert_uint_eq(utf8_previous(s, n, i), starts[--k]);
        ck_assert_uint_eq(utf8_previous(s, n, 0), 0);
        ck_assert_uint_eq(utf8_next(s, n, n), n);
    }
}
END_TEST

static const struct {
    const char *in;
    unsigned keep;
    const char *escaped, *stripped;
} hostile[] = {
    {"plain ü 你", 0, "plain ü 你", "plain ü 你"},
    {"a\x1b[31mred\x1b[0m", 0, "a\\e[31mred\\e[0m", "ared"},
    {"a\xc2\x9b"
     "31mred",
     0, "a\\x9b31mred", "ared"},
    {"\x1b]0;title\x07x", 0, "\\e]0;title\\x07x", "x"},
    {"\x1b]52;c;AAAA\x1b\\x", 0, "\\e]52;c;AAAA\\e\\x", "x"},
    {"\xc2\x9d"
     "52;c;A\xc2\x9cx",
     0, "\\x9d52;c;A\\x9cx", "x"},
    {"\x1bP1;2q#0\x1b\\x", 0, "\\eP1;2q#0\\e\\x", "x"},
    {"\x1b(Bx\x1b"
     "cy\x1b",
     0, "\\e(Bx\\ecy\\e", "xy"},
    {"\x1b]unfinished\nnext", UTF8_KEEP_NEWLINE, "\\e]unfinished\nnext", "\nnext"},
    {"\x1b[12\nnext", UTF8_KEEP_NEWLINE, "\\e[12\nnext", "\nnext"},
    {"a\tb\r\nc\rd", UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB, "a\tb\\r\nc\\rd", "a\tb\nc\nd"},
    {"a\tb\nc", 0, "a\\tb\\nc", "abc"},
    {"x\u202eevil\u2066y\u2028z", 0, "x\\u{202e}evil\\u{2066}y\\u{2028}z", "xevilyz"},
    {"\xff\xc3", 0, "\\xff\\xc3", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\x7f\b\a", 0, "\\x7f\\x08\\x07", ""},
    {"\U000e0041", 0, "\\u{e0041}", ""},
    {"\U0001f469\u200d\U0001f467", 0, "\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f467"},
};

START_TEST(hostile_text_becomes_safe)
{
    char out[256];
    const char *in = hostile[_i].in;

    ck_assert_uint_eq(utf8_escape(out, sizeof out, in, strlen(in), hostile[_i].keep),
                      strlen(hostile[_i].escaped));
    ck_assert_str_eq(out, hostile[_i].escaped);
    ck_assert_uint_eq(utf8_strip(out, sizeof out, in, strlen(in), hostile[_i].keep),
                      strlen(hostile[_i].stripped));
    ck_assert_str_eq(out, hostile[_i].stripped);
}
END_TEST

/* Every result, at every buffer size, is valid UTF-8 without anything unsafe, and a prefix of the
 * whole one. */
START_TEST(any_bytes_any_size)
{
    unsigned x = 1;
    char in[64], whole[1024], cut[1024];

    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof in; i++) {
            x = x * 1664525u + 1013904223u;
            in[i] = x >> 31 ? "\x1b[]P\\\xc2\x9b\xe2\x80\xae;m\n\r\xf0"[x >> 8 & 15]
                            : (char)(x >> 16);
        }
        for (int f = 0; f < 2; f++) {
            size_t (*fn)(char *, size_t, const char *, size_t, unsigned) = f ? utf8_strip
                                                                             : utf8_escape;
            size_t n = fn(whole, sizeof whole, in, sizeof in, 0), size = x >> 12 & 127, len;

            ck_assert_uint_lt(n, sizeof whole);
            ck_assert_uint_eq(strlen(whole), n);
            ck_assert(utf8_valid(whole, n));
            for (size_t i = 0; i < n;) {
                uint32_t cp;

                i += utf8_decode(whole + i, n - i, &cp);
                ck_assert(!utf8_unsafe(cp));
            }
            memset(cut, 'Z', sizeof cut);
            ck_assert_uint_eq(fn(cut, size, in, sizeof in, 0), n);
            len = size ? strlen(cut) : 0;
            ck_assert(len < size || size == 0);
            ck_assert(memcmp(cut, whole, len) == 0 && utf8_valid(cut, len));
            ck_assert(cut[size] == 'Z');
        }
    }
}
END_TEST

/* Six hundred marks on a letter, in pieces, and zero-width joiners: a few stay, other text all. */
START_TEST(a_flood_of_marks_is_bounded)
{
    struct utf8_marks m = {0};
    char piece[64], out[4096];
    size_t n, total = 0;

    strcpy(out, "a");
    total = utf8_cap_marks(&m, out, 1);
    for (int i = 0; i < 600; i++) {
        strcpy(piece, i % 3 ? "\xcc\x81" : "\xe2\x80\x8d"); /* U+0301, U+200D */
        n = utf8_cap_marks(&m, piece, strlen(piece));
        memcpy(out + total, piece, n);
        total += n;
    }
    ck_assert_uint_le(total, 1 + 3 * UTF8_MARKS_MOST);
    ck_assert_uint_ge(total, 1 + 2 * UTF8_MARKS_MOST);
    strcpy(piece, "b\xcc\x81\tc\n\xc3\xa9\xe6\x97\xa5");
    n = strlen(piece);
    ck_assert_uint_eq(utf8_cap_marks(&m, piece, n), n);
    ck_assert_str_eq(piece, "b\xcc\x81\tc\n\xc3\xa9\xe6\x97\xa5");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("utf8");
    TCase *c = tcase_create("utf8");

    tcase_add_test(c, decodes_every_scalar_value);
    tcase_add_loop_test(c, malformed_parts_are_maximal, 0, sizeof malformed / sizeof *malformed);
    tcase_add_test(c, encode_replaces_what_is_no_scalar);
    tcase_add_loop_test(c, clusters_and_their_width, 0, sizeof clusters / sizeof *clusters);
    tcase_add_test(c, fitting_never_cuts_a_cluster);
    tcase_add_test(c, cursor_steps_agree_both_ways);
    tcase_add_loop_test(c, hostile_text_becomes_safe, 0, sizeof hostile / sizeof *hostile);
    tcase_add_test(c, any_bytes_any_size);
    tcase_add_test(c, a_flood_of_marks_is_bounded);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
