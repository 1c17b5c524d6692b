/* Help: the keys from their table and the commands, as text that scrolls. */
#include "ui/panel.h"

#include <stdlib.h>
#include <string.h>

static int count_lines(const char *s)
{
    int n = 0;

    for (; s && *s; s++)
        n += *s == '\n';
    return n;
}

static int want(const struct ui_model *m, int width)
{
    return count_lines(m->help_text);
}

static void draw(struct canvas *c, struct rect r, struct ui_model *m)
{
    const char *s = m->help_text ? m->help_text : "";
    int lines = count_lines(s), most = lines - r.h, y;

    m->help_top = m->help_top > most ? most : m->help_top;
    m->help_top = m->help_top < 0 ? 0 : m->help_top;
    for (y = -m->help_top; *s && y < r.h; y++) {
        size_t n = strcspn(s, "\n");
        enum theme_role role = s[0] != ' ' ? ROLE_STYLE_HEADING : ROLE_STYLE_TEXT;

        if (y >= 0) {
            if (role == ROLE_STYLE_TEXT && n > 19 && s[2] != ' ') {
                canvas_text_n(c, r.x, r.y + y, theme_style(&m->theme, ROLE_STYLE_FIGURE), s, 19);
                canvas_text_n(c, r.x + 19, r.y + y, theme_style(&m->theme, ROLE_STYLE_TEXT), s + 19, n - 19);
            } else {
                canvas_text_n(c, r.x, r.y + y, theme_style(&m->theme, role), s, n);
            }
        }
        s += n + (s[n] == '\n');
    }
}

static bool act(struct ui_model *m, enum action a)
{
    switch (a) {
    case ACTION_UP: m->help_top--; return true;
    case ACTION_DOWN: m->help_top++; return true;
    case ACTION_PAGE_UP: m->help_top -= 10; return true;
    case ACTION_PAGE_DOWN: m->help_top += 10; return true;
    case ACTION_FIRST: m->help_top = 0; return true;
    case ACTION_LAST: m->help_top = 1 << 20; return true;
    default: return false;
    }
}

const struct panel panel_help = {
    .name = "help", .help = "keys and commands", .open = false, .column = 1, .priority = 9, .min = 4, .grow = 1, .want = want,
    .draw = draw, .act = act,
};
