/* Sessions of a server: client, rate, cached part of the prompt and fill of each; below them the
 * waiting requests. Shown in the chat's place. */
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "a row for each session: reading (a prompt), answering, held (its client is behind with "
    "reading "
    "the answer, which stands still), idle",
    "holds: tokens whose state is there, of what a session may hold; the next request that begins "
    "like them need not be read",
    "prompt: tokens of the request, or while it is read how much of it is there; cached: tokens "
    "that were there already",
    "made: tokens of the answer so far; tok/s: from its first to its newest token, computing for "
    "the others included",
    "time: since the request came; waiting: requests for which no session is free, the next one "
    "first",
    NULL,
};

struct state {
    int top; /* first row shown */
};

static int rows_of(const struct ui_serving *s)
{
    int n = s->n_sessions < UI_SESSIONS ? s->n_sessions : UI_SESSIONS,
        more = s->n_sessions > UI_SESSIONS,
        waiting = s->waiting < UI_WAITING ? s->waiting : UI_WAITING;

    return n + more + waiting + (s->waiting > UI_WAITING);
}

static int sessions_want(const struct ui_model *m, int width)
{
    return m->serving ? 1 + rows_of(m->serving) : 1;
}

static int sessions_most(const struct ui_model *m, int width)
{
    return sessions_want(m, width) + 1;
}

static void sessions_side(const struct ui_model *m, const struct panel_view *v, char *out,
                          size_t size)
{
    const struct ui_serving *s = m->serving;

    if (s)
        snprintf(out, size, "%d of %d at work%s%.0d%s", s->running, s->n_sessions,
                 s->waiting ? " · " : "", s->waiting, s->waiting ? " waiting" : "");
}

static const char *state_word(enum ui_session_state s)
{
    return s == UI_SESSION_READING     ? "reading"
           : s == UI_SESSION_ANSWERING ? "answering"
           : s == UI_SESSION_HELD      ? "held"
                                       : "idle";
}

/* A column is shown if the pane is at least `from` wide; each is `width` cells. */
enum column { NUMBER, STATE, RATE, MADE, PROMPT, CACHED, HOLDS, TIME, WHO, COLUMNS };
static const struct {
    const char *title;
    int width, from;
    bool left;
} columns[COLUMNS] = {
    [NUMBER] = {"", 3, 0, false},        [STATE] = {"", 11, 0, true},
    [RATE] = {"tok/s", 8, 20, false},    [MADE] = {"made", 7, 28, false},
    [PROMPT] = {"prompt", 8, 36, false}, [CACHED] = {"cached", 8, 46, false},
    [HOLDS] = {"holds", 14, 74, false},  [TIME] = {"time", 8, 60, false},
    [WHO] = {"client", 0, 30, true},
};

static void cell(char *out, size_t size, const struct ui_model *m, int row,
                 const struct ui_session *s, enum column at)
{
    bool asked = s->who[0] != 0;
    char a[24];

    out[0] = 0;
    switch (at) {
    case NUMBER: snprintf(out, size, "%d", row); break;
    case STATE: snprintf(out, size, "%s", state_word(s->state)); break;
    case RATE:
        if (s->state != UI_SESSION_IDLE)
            snprintf(out, size, "%s", draw_rate(a, s->tok_s));
        break;
    case MADE:
        if (asked)
            snprintf(out, size, "%d", s->made);
        break;
    case PROMPT:
        if (asked && s->state == UI_SESSION_READING && s->prompt > 0)
            snprintf(out, size, "%.0f %%", 100.0 * s->read / s->prompt);
        else if (asked)
            snprintf(out, size, "%d", s->prompt);
        break;
    case CACHED:
        if (asked)
            snprintf(out, size, "%d", s->cached);
        break;
    case HOLDS: snprintf(out, size, "%d/%d", s->held, m->serving->context); break;
    case TIME:
        if (s->state != UI_SESSION_IDLE)
            snprintf(out, size, "%.1f s", s->seconds);
        break;
    default: snprintf(out, size, "%s%s%s", s->who, asked ? " " : "", s->what); break;
    }
}

/* Iterates over the columns of a row; title: draws their names instead. */
static void row_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m, int row,
                     const struct ui_session *s)
{
    bool works = s && s->state != UI_SESSION_IDLE;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM),
                 text = works ? theme_style(&m->theme, ROLE_STYLE_TEXT) : dim,
                 figure = works ? theme_style(&m->theme, ROLE_STYLE_FIGURE) : dim;
    int x = r.x;

    for (enum column i = 0; i < COLUMNS; i++) {
        char value[96];
        int width = columns[i].width ? columns[i].width : r.x + r.w - x - 2;

        if (r.w < columns[i].from || width < 4 - (i == NUMBER) || x + width > r.x + r.w)
            continue;
        if (s)
            cell(value, sizeof value, m, row, s, i);
        else
            snprintf(value, sizeof value, "%s", columns[i].title);
        if (columns[i].left)
            canvas_text_fit(c, x + 1 + (i == WHO), y, width - (i == WHO ? 0 : 1), s ? text : dim,
                            value);
        else
            canvas_text_right(c, x + width, y, !s ? dim : i == RATE ? figure : text, value);
        x += width;
    }
}

static void waiting_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m, int i)
{
    const struct ui_waiting *w = &m->serving->queue[i];
    char text[160];

    snprintf(text, sizeof text, "waiting %.1f s · prompt %d · %s %s", w->seconds, w->prompt, w->who,
             w->what);
    canvas_text_fit(c, r.x + 4, y, r.w - 4, theme_style(&m->theme, ROLE_STYLE_NEW), text);
}

static void more_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m, int n,
                      const char *what)
{
    char text[64];

    snprintf(text, sizeof text, "and %d more %s", n, what);
    canvas_text_fit(c, r.x + 4, y, r.w - 4, theme_style(&m->theme, ROLE_STYLE_DIM), text);
}

/* Row i of all: sessions, number of hidden ones, waiting requests, number of hidden ones. */
static void any_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m, int i)
{
    const struct ui_serving *s = m->serving;
    int n = s->n_sessions < UI_SESSIONS ? s->n_sessions : UI_SESSIONS;

    if (i < n) {
        row_draw(c, r, y, m, i, &s->sessions[i]);
        return;
    }
    i -= n;
    if (s->n_sessions > UI_SESSIONS && i-- == 0)
        more_draw(c, r, y, m, s->n_sessions - UI_SESSIONS, "sessions");
    else if (i < UI_WAITING)
        waiting_draw(c, r, y, m, i);
    else
        more_draw(c, r, y, m, s->waiting - UI_WAITING, "waiting");
}

static void sessions_draw(struct canvas *c, struct rect r, struct ui_model *m,
                          const struct panel_view *v)
{
    const struct ui_serving *s = m->serving;
    struct state *own = v->state;
    int y = r.y, n, most;

    if (!s)
        return;
    n = rows_of(s);
    if (r.h > 1)
        row_draw(c, r, y++, m, 0, NULL);
    most = n - (r.y + r.h - y);
    own->top = own->top > most ? most : own->top;
    own->top = own->top < 0 ? 0 : own->top;
    for (int i = own->top; i < n && y < r.y + r.h; i++, y++)
        any_draw(c, r, y, m, i);
}

static bool sessions_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    struct state *own = v->state;

    switch (a) {
    case ACTION_UP: own->top--; break;
    case ACTION_DOWN: own->top++; break;
    case ACTION_PAGE_UP: own->top -= 10; break;
    case ACTION_PAGE_DOWN: own->top += 10; break;
    case ACTION_FIRST: own->top = 0; break;
    case ACTION_LAST: own->top = UI_SESSIONS + UI_WAITING; break;
    default: return false;
    }
    return true; /* clamped when drawing */
}

const struct panel panel_sessions = {
    .name = "sessions",
    .open = true,
    .place = PANEL_OF_SERVER,
    .state_size = sizeof(struct state),
    .priority = 1,
    .min = 2,
    .want = sessions_want,
    .most = sessions_most,
    .draw = sessions_draw,
    .side = sessions_side,
    .act = sessions_act,
    .explain = explain,
    .keys = "arrows",
};
