/* Help: the keys from their table and the commands, as scrolling text; explanations wrap in their
 * column. */
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <string.h>

#define COLUMN 19 /* start of the explanations */

struct state {
    int top;         /* first row shown */
    int rows, shown; /* of the last drawing: all, and those of the pane */
};

/* Draws from row y on if c is given; returns the number of rows. The text is our own ASCII. */
static int flow(struct canvas *c, struct rect r, const struct ui_model *m, int y)
{
    const char *s = m->help_text ? m->help_text : "";
    int start = y;

    while (*s) {
        size_t n = strcspn(s, "\n"), at = 0;
        bool row = n > COLUMN && s[0] == ' ' && s[2] != ' ';
        struct style text = theme_style(&m->theme,
                                        s[0] && s[0] != ' ' ? ROLE_STYLE_HEADING : ROLE_STYLE_TEXT);

        if (row) {
            if (c && y >= r.y)
                canvas_text_n(c, r.x, y, theme_style(&m->theme, ROLE_STYLE_FIGURE), s, COLUMN);
            at = COLUMN;
        }
        do {
            int x = r.x + (row ? COLUMN : 0), room = r.x + r.w - x;
            size_t take = n - at;

            room = room < 8 ? 8 : room;
            if (take > (size_t)room) {
                for (take = (size_t)room; take > 1 && s[at + take] != ' '; take--)
                    ;
                take = take > 1 ? take : (size_t)room;
            }
            if (c && y >= r.y && y < r.y + r.h)
                canvas_text_n(c, x, y, text, s + at, take);
            at += take;
            at += at < n && s[at] == ' ';
            y++;
        } while (at < n);
        s += n + (s[n] == '\n');
    }
    return y - start;
}

static int help_want(const struct ui_model *m, int width)
{
    return flow(NULL, (struct rect){0, 0, width, 1}, m, 0);
}

static void help_draw(struct canvas *c, struct rect r, struct ui_model *m,
                      const struct panel_view *v)
{
    struct state *s = v->state;
    int most;

    s->rows = flow(NULL, r, m, 0);
    s->shown = r.h;
    most = s->rows - r.h;
    s->top = s->top > most ? most : s->top;
    s->top = s->top < 0 ? 0 : s->top;
    flow(c, r, m, r.y - s->top);
}

static void help_side(const struct ui_model *m, const struct panel_view *v, char *out, size_t size)
{
    const struct state *s = v->state;
    int last = s->top + s->shown;

    if (s->rows > s->shown)
        snprintf(out, size, "%d–%d of %d, PgUp PgDn · F1 or Esc closes", s->top + 1,
                 last < s->rows ? last : s->rows, s->rows);
    else
        snprintf(out, size, "F1 or Esc closes");
}

static bool help_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    struct state *s = v->state;

    switch (a) {
    case ACTION_UP: s->top--; return true;
    case ACTION_DOWN: s->top++; return true;
    case ACTION_PAGE_UP: s->top -= 10; return true;
    case ACTION_PAGE_DOWN: s->top += 10; return true;
    case ACTION_FIRST: s->top = 0; return true;
    case ACTION_LAST: s->top = 1 << 20; return true;
    default: return false;
    }
}

const struct panel panel_help = {
    .name = "help",
    .training = true,
    .overlay = true,
    .zoom = ACTION_HELP,
    .state_size = sizeof(struct state),
    .column = 1,
    .priority = 9,
    .min = 4,
    .grow = 1,
    .want = help_want,
    .draw = help_draw,
    .side = help_side,
    .act = help_act,
    .keys = "arrows, PgUp, PgDn",
};
