/* The grid of cells: clipping, wide cells, clusters, hostile text. */
#include "tests/support.h"
#include "ui/ascii.h"
#include "ui/canvas.h"
#include "ui/glyph.h"

#include <stdlib.h>
#include <string.h>

static char *printed(const struct canvas *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    canvas_print(c, f, false);
    fclose(f);
    return text;
}

static void assert_shows(const struct canvas *c, const char *expected)
{
    char *text = printed(c);

    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(text_and_clip)
{
    struct canvas c;
    struct rect before;

    ck_assert_int_eq(canvas_init(&c, 10, 3), 0);
    ck_assert_int_eq(canvas_text(&c, 2, 0, STYLE_PLAIN, "hello"), 7);
    canvas_text(&c, 7, 1, STYLE_PLAIN, "outside");
    canvas_text(&c, -2, 2, STYLE_PLAIN, "left");
    assert_shows(&c, "  hello\n       out\nft\n");
    before = canvas_clip(&c, (struct rect){1, 0, 3, 1});
    canvas_fill(&c, (struct rect){0, 0, 10, 3}, STYLE_PLAIN, '#');
    canvas_clip_set(&c, before);
    assert_shows(&c, " ###llo\n       out\nft\n");
    canvas_release(&c);
}
END_TEST

START_TEST(wide_cells)
{
    struct canvas c;

    canvas_init(&c, 6, 1);
    ck_assert_int_eq(canvas_text(&c, 0, 0, STYLE_PLAIN, "世界a"), 5);
    assert_shows(&c, "世界a\n");
    canvas_put(&c, 1, 0, STYLE_PLAIN, 'x'); /* the right half: the left half cannot stay */
    assert_shows(&c, " x界a\n");
    canvas_put(&c, 2, 0, STYLE_PLAIN, 'y');
    assert_shows(&c, " xy a\n");
    canvas_clear(&c);
    canvas_text(&c, 5, 0, STYLE_PLAIN, "世"); /* would stick out */
    assert_shows(&c, "\n");
    canvas_text(&c, 0, 0, STYLE_PLAIN, "👨‍👩‍👧e\xcc\x81🇩🇪");
    ck_assert_int_eq(canvas_at(&c, 0, 0)->width, 2);
    ck_assert_int_eq(canvas_at(&c, 2, 0)->width, 1);
    ck_assert_int_eq(canvas_at(&c, 3, 0)->width, 2);
    assert_shows(&c, "👨‍👩‍👧e\xcc\x81🇩🇪\n");
    canvas_release(&c);
}
END_TEST

START_TEST(fit_and_right)
{
    struct canvas c;

    canvas_init(&c, 12, 3);
    ck_assert_int_eq(canvas_text_fit(&c, 0, 0, 5, STYLE_PLAIN, "abcdefgh"), 5);
    ck_assert_int_eq(canvas_text_fit(&c, 0, 1, 4, STYLE_PLAIN, "a世世世"), 4);
    ck_assert_int_eq(canvas_text_right(&c, 12, 2, STYLE_PLAIN, "end"), 9);
    assert_shows(&c, "abcd…\na世…\n         end\n");
    canvas_release(&c);
}
END_TEST

/* Whatever the bytes: no control character, no C1, no bidi control comes out, and everything that
 * comes out is whole UTF-8. */
static void assert_harmless(const char *text, size_t len)
{
    struct canvas c;
    char *out;
    const unsigned char *p;

    canvas_init(&c, 60, 2);
    canvas_text_n(&c, 0, 0, STYLE_PLAIN, text, len);
    out = printed(&c);
    for (p = (const unsigned char *)out; *p; p++) {
        ck_assert_msg(*p >= 0x20 || *p == '\n', "control byte %02x", *p);
        ck_assert_msg(*p != 0x7f, "DEL");
        ck_assert_msg(!(p[0] == 0xc2 && p[1] < 0xa0), "C1");
        ck_assert_msg(!(p[0] == 0xe2 && p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae),
                      "bidi override");
        ck_assert_msg(!(p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9),
                      "bidi isolate");
    }
    free(out);
    canvas_release(&c);
}

START_TEST(hostile_text)
{
    static const char *const texts[] = {
        "\033[2J\033]52;c;aGFoYQ==\007x",
        "\xc2\x9b"
        "31mred",
        "a\xe2\x80\xae"
        "b\xe2\x81\xa6",
        "\xff\xfe\x80\xc0\xaf",
        "\xed\xa0\x80",
        "e\xe2\x80\xae\xcc\x81",
        "\x7f\x01\x02\r\v\f",
        "\xf4\x90\x80\x80",
        "\xef\xbb\xbf"
        "bom",
        "a\xcc",
        "\xf0\x9f\x91",
    };
    char zalgo[2002] = "Z", random[257];
    size_t i, j;

    for (i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_harmless(texts[i], strlen(texts[i]));
    for (i = 0; i < 1000; i++)
        memcpy(zalgo + 1 + 2 * i, "\xcc\x81", 2);
    assert_harmless(zalgo, 2001);
    srand(1);
    for (i = 0; i < 2000; i++) {
        for (j = 0; j < sizeof random; j++)
            random[j] = (char)(rand() >> 7);
        assert_harmless(random, sizeof random);
    }
}
END_TEST

START_TEST(widths_agree)
{
    static const char *const texts[] = {"plain",        "世界",   "👨‍👩‍👧‍👦",
                                        "e\xcc\x81",    "\t",     "🏳️‍🌈x",
                                        "\xe2\x80\x8b", "한국어", "ﷺ"};
    struct canvas c;
    size_t i;

    canvas_init(&c, 80, 1);
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ck_assert_int_eq(canvas_text(&c, 0, 0, STYLE_PLAIN, texts[i]),
                         glyph_text_width(texts[i], strlen(texts[i])));
    canvas_release(&c);
}
END_TEST

START_TEST(ascii_keeps_the_places)
{
    struct canvas c;
    char text[64];
    int x;

    ck_assert_int_eq(canvas_init(&c, 12, 2), 0);
    /* 世a─█⣿é */
    canvas_text(&c, 0, 0, STYLE_PLAIN,
                "\xe4\xb8\x96"
                "a\xe2\x94\x80\xe2\x96\x88\xe2\xa3\xbf\xc3\xa9");
    /* a family, and a dot */
    canvas_text(&c, 0, 1, STYLE_PLAIN, "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9.");
    ascii_canvas(&c);
    for (x = 0; x < 12; x++) {
        const struct cell *cell = canvas_at(&c, x, 0);

        ck_assert_int_eq(cell->width, 1);
        ck_assert_uint_lt(cell->ch, 0x7f);
        text[x] = (char)cell->ch;
    }
    ck_assert_int_eq(memcmp(text, "? a-##?     ", 12), 0);
    ck_assert_uint_eq(canvas_at(&c, 0, 1)->ch, '?');
    ck_assert_uint_eq(canvas_at(&c, 2, 1)->ch, '.');
    canvas_release(&c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("canvas");
    TCase *t = tcase_create("canvas");

    tcase_add_test(t, text_and_clip);
    tcase_add_test(t, ascii_keeps_the_places);
    tcase_add_test(t, wide_cells);
    tcase_add_test(t, fit_and_right);
    tcase_add_test(t, hostile_text);
    tcase_add_test(t, widths_agree);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
