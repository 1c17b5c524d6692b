/* See panel.h: the list of panels, and common helpers. */
#include "ui/panels/panel.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <string.h>

_Static_assert(PANEL_COUNT <= LAYOUT_PANELS, "room in the layout and the model");

#define PANEL(name) &panel_##name,
const struct panel *const panels[PANEL_COUNT] = {
#include "ui/panels/panels.def"
};
#undef PANEL

int panel_toggles(void)
{
    int n = 0;

    while (n < PANEL_COUNT && !panels[n]->overlay)
        n++;
    return n;
}

int panel_find(const char *name)
{
    for (int i = 0; i < PANEL_COUNT; i++)
        if (strcmp(panels[i]->name, name) == 0)
            return i;
    return -1;
}

bool panel_there(const struct ui_model *m, int index)
{
    enum panel_place place = panels[index]->place;

    if (m->training)
        return place == PANEL_OF_TRAINING || panels[index]->training;
    if (place == PANEL_OF_CONNECTED)
        return m->server.on;
    return place == PANEL_OF_BOTH || place == (m->serving ? PANEL_OF_SERVER : PANEL_OF_CHAT);
}

bool panel_on_stage(const struct panel *p)
{
    return p->place == PANEL_OF_SERVER || p->place == PANEL_OF_TRAINING;
}

const char *const *panel_explanation(const struct ui_model *m, const struct panel *p)
{
    if (m->training && p->explain_training)
        return p->explain_training;
    return m->serving && p->explain_server ? p->explain_server : p->explain;
}

int panel_zoomed_by(const struct ui_model *m, enum action a)
{
    for (int i = 0; i < PANEL_COUNT && a != ACTION_NONE; i++)
        if (panels[i]->zoom == a && panel_there(m, i))
            return i;
    return -1;
}

int panels_init(struct ui_model *m)
{
    for (int i = 0; i < PANEL_COUNT; i++)
        if (panels[i]->state_size && !(m->panel_state[i] = mem_alloc(1, panels[i]->state_size)))
            return ERR_MEMORY;
    return 0;
}

void panels_reset(struct ui_model *m)
{
    for (int i = 0; i < PANEL_COUNT; i++)
        if (panels[i]->state_size)
            memset(m->panel_state[i], 0, panels[i]->state_size);
}

struct panel_view panel_view(const struct ui_model *m, int index)
{
    assert(index >= 0 && index < PANEL_COUNT);
    return (struct panel_view){
        .state = m->panel_state[index], .focused = m->focus == index, .zoomed = m->zoom == index};
}

int panel_figure(struct canvas *c, int x, int y, const struct ui_model *m, const char *label,
                 int at, const char *figure, const char *unit)
{
    canvas_text(c, x, y, theme_style(&m->theme, ROLE_STYLE_DIM), label);
    x = canvas_text(c, x + at, y, theme_style(&m->theme, ROLE_STYLE_FIGURE), figure);
    if (x + 1 + (int)strlen(unit) > c->clip.x + c->clip.w && strchr(unit, '/'))
        /* "728.1/s" */
        return canvas_text(c, x, y, theme_style(&m->theme, ROLE_STYLE_DIM), strchr(unit, '/'));
    if (unit[0])
        x = canvas_text(c, x + 1, y, theme_style(&m->theme, ROLE_STYLE_DIM), unit);
    return x;
}

/* Words of the explanation, cut at blanks. */
int panel_explain(struct canvas *c, struct rect r, const struct ui_model *m, const struct panel *p)
{
    struct style s = theme_style(&m->theme, ROLE_STYLE_TEXT);
    const char *const *lines = panel_explanation(m, p);
    int row = 0, i;

    for (i = 0; lines && lines[i]; i++) {
        const char *word = lines[i];
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
