/* Themes: what can be read on the ground a theme is made for, what needs no theme, grounds as
 * terminals tell them, eight colours. */
#include "app/setup/screen/theme_file.h"
#include "tests/support.h"
#include "ui/theme.h"

#include <math.h>
#include <string.h>

/* xterm's palette: others have their own sixteen, nobody's are far from these. */
static void rgb_of(int colour, double rgb[3])
{
    static const uint8_t sixteen[16][3] = {
        {0, 0, 0},       {205, 0, 0},   {0, 205, 0},   {205, 205, 0},
        {0, 0, 238},     {205, 0, 205}, {0, 205, 205}, {229, 229, 229},
        {127, 127, 127}, {255, 0, 0},   {0, 255, 0},   {255, 255, 0},
        {92, 92, 255},   {255, 0, 255}, {0, 255, 255}, {255, 255, 255},
    };
    static const uint8_t levels[6] = {0, 95, 135, 175, 215, 255};

    for (int i = 0; i < 3; i++)
        rgb[i] = colour < 16     ? sixteen[colour][i]
                 : colour >= 232 ? 8 + (colour - 232) * 10
                                 : levels[(colour - 16) /
                                          (i == 0   ? 36
                                           : i == 1 ? 6
                                                    : 1) %
                                          6];
}

/* WCAG 2: relative luminance, contrast 1 to 21. */
static double luminance(int colour)
{
    double rgb[3];

    rgb_of(colour, rgb);
    for (int i = 0; i < 3; i++)
        rgb[i] = rgb[i] / 255 <= 0.04045 ? rgb[i] / 255 / 12.92
                                         : pow((rgb[i] / 255 + 0.055) / 1.055, 2.4);
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
}

static double contrast(int a, int b)
{
    double x = luminance(a), y = luminance(b);

    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

/* Text of every role but the rules between parts: 4.5 in 256 colours; the sixteen are the
 * terminal's own, so 3 in xterm's. */
START_TEST(a_theme_can_be_read)
{
    static const struct {
        const char *name;
        int ground;
    } themes[] = {{"dark", 16}, {"light", 231}, {"contrast", 16}};
    struct theme t;
    struct error e;
    char path[600];

    theme_init(&t);
    snprintf(path, sizeof path, "%s/configs/themes/%s.yaml", support_root(), themes[_i].name);
    ck_assert_msg(theme_file_load(&t, path, &e) == 0, "%s", e.text);
    for (int depth = THEME_16; depth <= THEME_256; depth++)
        for (enum theme_role role = 0; role < THEME_ROLE_COUNT; role++) {
            struct style s = t.roles[role][depth];
            double least = depth == THEME_256 ? 4.5 : 3;
            int ground = s.bg >= 0 ? s.bg : themes[_i].ground;

            if (s.fg < 0 || role == ROLE_STYLE_RULE)
                continue;
            ck_assert_msg(contrast(s.fg, ground) >= least,
                          "%s, depth %d, %s: %d on %d has a contrast of %.2f", themes[_i].name,
                          depth, theme_role_name(role), s.fg, ground, contrast(s.fg, ground));
        }
}
END_TEST

/* The ink on coloured tokens: whatever the theme's ramp, in xterm's palette. */
START_TEST(ink_on_a_colour_can_be_read)
{
    static const char *const names[] = {"dark", "light", "contrast", "either"};
    struct theme t;
    struct error e;
    char path[600];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        theme_init(&t);
        snprintf(path, sizeof path, "%s/configs/themes/%s.yaml", support_root(), names[i]);
        ck_assert_msg(theme_file_load(&t, path, &e) == 0, "%s", e.text);
        for (int depth = THEME_16; depth <= THEME_256; depth++)
            for (int k = 0; k < THEME_RAMP * THEME_RAMPS; k++) {
                int16_t colour = t.ramp[k % THEME_RAMPS][depth][k / THEME_RAMPS];
                struct style s = theme_on(colour);

                ck_assert_int_eq(s.bg, colour);
                ck_assert_msg(contrast(s.fg, s.bg) >= 4.5, "%s: %d on %d has %.2f", names[i], s.fg,
                              s.bg, contrast(s.fg, s.bg));
            }
    }
    for (int colour = 0; colour < 256; colour++)
        ck_assert_msg(contrast(theme_on((int16_t)colour).fg, colour) >= 4.5, "on %d", colour);
}
END_TEST

/* Where nobody knows the ground: the terminal's own ink, and accents of 3 on black and on white. */
START_TEST(the_theme_for_either_ground)
{
    struct theme t;
    struct error e;
    char path[600];

    theme_init(&t);
    snprintf(path, sizeof path, "%s/configs/themes/either.yaml", support_root());
    ck_assert_msg(theme_file_load(&t, path, &e) == 0, "%s", e.text);
    for (enum theme_role role = 0; role < THEME_ROLE_COUNT; role++) {
        struct style s = t.roles[role][THEME_256];

        ck_assert_int_eq(s.bg, -1);
        if (s.fg < 0)
            continue;
        ck_assert_msg(contrast(s.fg, 16) >= 3 && contrast(s.fg, 231) >= 3,
                      "%s: %d has %.2f on black, %.2f on white", theme_role_name(role), s.fg,
                      contrast(s.fg, 16), contrast(s.fg, 231));
    }
    ck_assert_int_eq(t.roles[ROLE_STYLE_TEXT][THEME_256].fg, -1);
    ck_assert_int_eq(t.roles[ROLE_STYLE_FIGURE][THEME_256].fg, -1);
}
END_TEST

/* What is said, what is typed and what is measured is in the terminal's own ink: nobody asked
 * whether the ground is light. */
START_TEST(the_design_without_a_theme_has_the_terminal_s_ink)
{
    static const enum theme_role own[] = {ROLE_STYLE_TEXT,  ROLE_STYLE_USER_TEXT, ROLE_STYLE_FIGURE,
                                          ROLE_STYLE_TITLE, ROLE_STYLE_NEW,       ROLE_STYLE_INPUT};
    struct theme built_in, dark;
    struct error e;
    char path[600];

    theme_init(&built_in);
    theme_init(&dark);
    snprintf(path, sizeof path, "%s/configs/themes/dark.yaml", support_root());
    ck_assert_int_eq(theme_file_load(&dark, path, &e), 0);
    ck_assert_int_eq(memcmp(dark.roles, built_in.roles, sizeof dark.roles), 0);
    for (int depth = 0; depth < 3; depth++)
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
            ck_assert_int_eq(built_in.roles[own[i]][depth].fg, -1);
            ck_assert_int_eq(built_in.roles[own[i]][depth].bg, -1);
        }
}
END_TEST

START_TEST(eight_colours_have_no_bold_black)
{
    struct theme t;
    struct style s;

    theme_init(&t);
    for (enum theme_role role = 0; role < THEME_ROLE_COUNT; role++) {
        s = theme_of_eight(t.roles[role][THEME_16]);
        ck_assert(s.fg < 8 && s.bg < 8);
        ck_assert_msg(s.fg != 0, "%s is black", theme_role_name(role));
        /* nobody brightens bold: it is read on black all the same */
        ck_assert_msg(s.fg < 0 || s.bg >= 0 || contrast(s.fg, 16) >= 3, "%s: %d has %.2f on black",
                      theme_role_name(role), s.fg, contrast(s.fg, 16));
    }
    s = theme_of_eight((struct style){8, -1, STYLE_BOLD});
    ck_assert(s.fg == -1 && s.attrs == STYLE_DIM);
    s = theme_of_eight((struct style){9, 12, 0});
    ck_assert(s.fg == 1 && s.bg == 4 && s.attrs == STYLE_BOLD);
}
END_TEST

START_TEST(grounds)
{
    static const struct {
        const char *text;
        int light;
    } said[] = {
        {"rgb:ffff/ffff/ffff", 1},
        {"rgb:0000/0000/0000", 0},
        {"rgb:ff/ff/f0", 1},
        {"rgb:1e1e/1e1e/2e2e", 0},
        {"rgb:f/f/f", 1},
        {"rgb:fdfd/f6f6/e3e3", 1},
        {"rgba:ffff/ffff/ffff/ffff", 1},
        {"rgb:0000/0000/ffff", 0},
        {"rgb:", -1},
        {"rgb:zz/zz/zz", -1},
        {"", -1},
        {"15;0", 0},
        {"0;15", 1},
        {"0;default;15", 1},
        {"12;8", 0},
        {"0;7", 1},
        {"15;default", -1},
        {"0;99", -1},
        {"0;-1", -1},
    };

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        ck_assert_msg(theme_ground_is_light(said[i].text) == said[i].light, "\"%s\"", said[i].text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("theme");
    TCase *c = tcase_create("theme");

    tcase_add_loop_test(c, a_theme_can_be_read, 0, 3);
    tcase_add_test(c, ink_on_a_colour_can_be_read);
    tcase_add_test(c, the_theme_for_either_ground);
    tcase_add_test(c, the_design_without_a_theme_has_the_terminal_s_ink);
    tcase_add_test(c, eight_colours_have_no_bold_black);
    tcase_add_test(c, grounds);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
