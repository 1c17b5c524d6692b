/* See panel.h: the list of panels, in the order of Alt-1 to Alt-6, and what they share. */
#include "ui/panels/panel.h"

#include <string.h>

const struct panel *const panels[PANEL_COUNT] = {
    [PANEL_SPEED] = &panel_speed,         [PANEL_MEMORY] = &panel_memory,       [PANEL_DEVICES] = &panel_devices,
    [PANEL_EXPERTS] = &panel_experts,     [PANEL_PLACEMENT] = &panel_placement, [PANEL_TOKENS] = &panel_tokens,
    [PANEL_HELP] = &panel_help,
};

int panel_figure(struct canvas *c, int x, int y, const struct ui_model *m, const char *label, int at, const char *figure, const char *unit)
{
    canvas_text(c, x, y, theme_style(&m->theme, ROLE_STYLE_DIM), label);
    x = canvas_text(c, x + at, y, theme_style(&m->theme, ROLE_STYLE_FIGURE), figure);
    if (x + 1 + (int)strlen(unit) > c->clip.x + c->clip.w && strchr(unit, '/'))
        return canvas_text(c, x, y, theme_style(&m->theme, ROLE_STYLE_DIM), strchr(unit, '/'));      /* "728.1/s" */
    if (unit[0])
        x = canvas_text(c, x + 1, y, theme_style(&m->theme, ROLE_STYLE_DIM), unit);
    return x;
}

/* Words of the explanation, cut at blanks. */
int panel_explain(struct canvas *c, struct rect r, const struct ui_model *m, const struct panel *p)
{
    struct style s = theme_style(&m->theme, ROLE_STYLE_TEXT);
    int row = 0, i;

    for (i = 0; p->explain && p->explain[i]; i++) {
        const char *word = p->explain[i];
        int x = r.x;

        while (*word) {
            size_t n = strcspn(word, " ");

            if (x > r.x && x + (int)n > r.x + r.w) {
                x = r.x + 2;
                row++;
            }
            if (c && row >= m->explain_top)
                canvas_text_n(c, x, r.y + row - m->explain_top, s, word, n);
            x += (int)n + 1;
            word += n;
            word += strspn(word, " ");
        }
        row++;
    }
    return row;
}
