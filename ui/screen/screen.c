/* See screen.h. */
#include "ui/screen/screen.h"
#include "ui/chatview.h"
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"
#include "ui/search.h"
#include "ui/screen/key_bar.h"
#include "ui/panels/presets.h"
#include "ui/screen/start_page.h"
#include "ui/screen/title.h"
#include "ui/token_ink.h"

#include <stdio.h>
#include <string.h>

#define INPUT_MOST 12
#define EXPLAIN_OF 8 /* rows of the screen left free by an explanation */

int screen_init(struct ui_model *m)
{
    m->open_panels = 0;
    for (int i = 0; i < PANEL_COUNT; i++)
        if (panels[i]->open && panel_there(m, i))
            m->open_panels |= 1u << i;
    return panels_init(m);
}

static struct rect inner(struct rect r)
{
    return (struct rect){r.x + 1, r.y + 1, r.w - 2, r.h - 1};
}

/* Start of the last part of a title; NULL: there is only one. */
static char *last_part(char *text)
{
    char *last = NULL;

    for (char *p = text; (p = strstr(p, " · ")); p++)
        last = p;
    return last;
}

/* ─ name ──────── right text ─ */
static void panel_title(struct canvas *c, struct rect r, const struct ui_model *m, int index)
{
    const struct theme *t = &m->theme;
    struct style rule = theme_style(t, ROLE_STYLE_RULE);
    struct panel_view v = panel_view(m, index);
    char side[96] = "", *cut;
    int x, end = r.x + r.w;

    canvas_fill(c, (struct rect){r.x, r.y, r.w, 1}, rule, 0x2500);
    x = canvas_text(c, r.x + 1, r.y, rule, " ");
    x = canvas_text(c, x, r.y,
                    theme_style(t, m->focus == index ? ROLE_STYLE_FOCUS : ROLE_STYLE_TITLE),
                    panels[index]->name);
    canvas_text(c, x, r.y, rule, " ");
    if (m->explain && m->focus == index)
        snprintf(side, sizeof side, "? closes%s",
                 panel_explain(NULL, inner(r), m, panels[index]) > r.h - 1 ? ", arrows scroll"
                                                                           : "");
    else if (panels[index]->side)
        panels[index]->side(m, &v, side, sizeof side);
    if (m->explain && m->focus == index && x + 5 + glyph_text_width(side, strlen(side)) >= end)
        snprintf(side, sizeof side, "arrows, ? ends");
    /* the first parts are the most important */
    while (x + 5 + glyph_text_width(side, strlen(side)) >= end && (cut = last_part(side)))
        *cut = 0;
    if (side[0] && x + 5 + glyph_text_width(side, strlen(side)) < end) {
        int from = canvas_text_right(c, end - 2, r.y, theme_style(t, ROLE_STYLE_DIM), side);

        canvas_text(c, from - 1, r.y, rule, " ");
        canvas_text(c, end - 2, r.y, rule, " ");
    }
}

static void panel_draw(struct canvas *c, struct rect r, struct ui_model *m, int index)
{
    struct rect before = canvas_clip(c, r), in = inner(r), clip;
    struct panel_view v = panel_view(m, index);

    clip = canvas_clip(c, in);
    if (in.w > 0 && in.h > 0 && m->explain && m->focus == index) {
        int most = panel_explain(NULL, in, m, panels[index]) - in.h;

        m->explain_top = m->explain_top > most ? most : m->explain_top;
        m->explain_top = m->explain_top < 0 ? 0 : m->explain_top;
        panel_explain(c, in, m, panels[index]);
    } else if (in.w > 0 && in.h > 0) {
        panels[index]->draw(c, in, m, &v);
    }
    canvas_clip_set(c, clip);
    /* may depend on what was drawn: layers, lines */
    panel_title(c, r, m, index);
    canvas_clip_set(c, before);
}

static void rules_draw(struct canvas *c, const struct layout *l, const struct ui_model *m)
{
    struct style rule = theme_style(&m->theme, ROLE_STYLE_RULE);
    int i, y;

    if (l->input_rule.h) {
        canvas_fill(c, l->input_rule, rule, 0x2500);
        if (m->waiting[0]) {
            int x = canvas_text(c, 1, l->input_rule.y, theme_style(&m->theme, ROLE_STYLE_NOTICE),
                                " next: ");

            x += canvas_text_fit(c, x, l->input_rule.y, l->input_rule.w - x - 2,
                                 theme_style(&m->theme, ROLE_STYLE_DIM), m->waiting);
            canvas_text(c, x, l->input_rule.y, rule, " ");
        }
    }
    for (i = 0; i < 2; i++)
        for (y = l->rule[i].y; l->rule[i].w && y < l->rule[i].y + l->rule[i].h; y++) {
            const struct cell *left = canvas_at(c, l->rule[i].x - 1, y),
                              *right = canvas_at(c, l->rule[i].x + 1, y);
            bool from_left = left && left->ch == 0x2500, from_right = right && right->ch == 0x2500;

            /* under a panel across both columns there is no line from above */
            canvas_put(c, l->rule[i].x, y, rule,
                       from_left && from_right && y == l->rule[i].y && y > l->rule[0].y ? 0x252c
                       : from_left && from_right                                        ? 0x253c
                       : from_left                                                      ? 0x2524
                       : from_right                                                     ? 0x251c
                                                                                        : 0x2502);
        }
}

static void tabs_draw(struct canvas *c, const struct layout *l, const struct ui_model *m)
{
    struct rect before = canvas_clip(c, l->tabs);
    char text[160] = "";
    size_t n = 0;
    int i;

    for (i = 0; i < PANEL_COUNT; i++)
        if ((m->open_panels >> i & 1) && !l->panels[i].h && n + 2 < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s",
                                  n ? " " : "Tab: ", panels[i]->name);
    canvas_text_fit(c, l->tabs.x + 1, l->tabs.y, l->tabs.w - 1,
                    theme_style(&m->theme, ROLE_STYLE_DIM), text);
    canvas_clip_set(c, before);
}

/* The model is being loaded: progress and remaining time, in the chat's place. */
static void loading_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    char text[160], a[16], b[16];
    int width = r.w - 6 > 48 ? 48 : r.w - 6, x = r.x + (r.w - width) / 2, y = r.y + r.h / 2;
    double share = m->progress_total ? (double)m->progress_done / (double)m->progress_total : 0;

    if (r.h < 2 || width < 8)
        return;
    snprintf(text, sizeof text, "reading %s", m->model_name[0] ? m->model_name : "the model");
    canvas_text_fit(c, x, y - 1, width, theme_style(&m->theme, ROLE_STYLE_TEXT), text);
    draw_bar(c, x, y, width, share, theme_style(&m->theme, ROLE_STYLE_GRAPH),
             theme_style(&m->theme, ROLE_STYLE_RULE));
    if (m->progress_total) {
        snprintf(text, sizeof text, "%s of %s", draw_size(a, (double)m->progress_done, false),
                 draw_size(b, (double)m->progress_total, false));
        canvas_text_right(c, x + width, y + 1, theme_style(&m->theme, ROLE_STYLE_DIM), text);
    }
}

/* The columns of its longest line. */
static int text_columns(const char *text)
{
    int most = 0;

    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        int w = glyph_text_width(p, n);

        most = w > most ? w : most;
        p += n + (p[n] == '\n');
    }
    return most;
}

/* Drawn above the input line, also over the panels beside the chat if a line is longer than
 * that. */
static void above_draw(struct canvas *c, const struct layout *l, const struct ui_model *m,
                       const char *text, int marked)
{
    struct rect r = {l->input.x, (l->input_rule.h ? l->input_rule.y : l->input.y) - 1, l->input.w,
                     1};
    int lines = 1, i, need = text_columns(text) + 2;
    const char *p;
    struct rect before;

    for (p = text; *p; p++)
        lines += *p == '\n';
    if (lines > r.y - 1)
        lines = r.y - 1;
    if (lines < 1)
        return;
    if (need > r.w) /* do not leave a narrow strip of a panel */
        r.w = c->w;
    r.y -= lines - 1;
    r.h = lines;
    before = canvas_clip(c, r);
    canvas_fill(c, r, theme_style(&m->theme, ROLE_STYLE_BAR), ' ');
    for (i = 0, p = text; i < lines; i++) {
        struct style s = theme_style(&m->theme,
                                     i + 1 == marked ? ROLE_STYLE_SELECT : ROLE_STYLE_BAR);
        size_t n = strcspn(p, "\n");
        char line[512];

        snprintf(line, sizeof line, "%.*s", (int)n, p);
        if (i + 1 == marked) {
            canvas_fill(c, (struct rect){r.x, r.y + i, r.w, 1}, s, ' ');
            canvas_put(c, r.x, r.y + i, s, 0x25b8);
        }
        canvas_text_fit(c, r.x + 1, r.y + i, r.w - 2, s, line);
        p += n + (p[n] == '\n');
    }
    canvas_clip_set(c, before);
}

/* The input line during a search. */
static void search_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    const struct ui_search *f = &m->search;
    struct rect before = canvas_clip(c, r);
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    bool typing = f->state == SEARCH_TYPING;
    char text[96];
    int x = canvas_text(c, r.x, r.y, theme_style(&m->theme, ROLE_STYLE_PROMPT), "find ");

    x = canvas_text(c, x, r.y, theme_style(&m->theme, ROLE_STYLE_INPUT), f->text);
    if (typing && x < r.w) {
        c->cursor_x = x;
        c->cursor_y = r.y;
    }
    if (!f->text[0])
        snprintf(text, sizeof text, "words of this chat \u00b7 Esc ends");
    else if (!f->hits)
        snprintf(text, sizeof text, "not in this chat \u00b7 Esc ends");
    else
        snprintf(text, sizeof text, "%d of %d \u00b7 %s", f->at + 1, f->hits,
                 typing ? "Enter, then n and N" : "n next, N before, Esc ends");
    canvas_text_fit(c, x + 2, r.y, r.x + r.w - x - 2, dim, text);
    canvas_clip_set(c, before);
}

/* The chat, and in an empty one the start page or the loading progress. */
static void chat_draw(struct canvas *c, struct rect r, struct ui_model *m)
{
    int rows = 0;

    if (m->n_blocks || !(m->loading || m->hints)) {
        chatview_draw(c, r, m);
        rows = m->chat_lines + 1;
    }
    if (ui_model_asked(m) || rows >= r.h)
        return;
    r.y += rows;
    r.h -= rows;
    if (start_page_wanted(m) && start_page_fits(m, r.w, r.h - (m->loading ? 4 : 0))) {
        struct rect page = {r.x, r.y, r.w, m->loading ? r.h - 4 : r.h};

        start_page_draw(c, page, m);
        r.y += page.h;
        r.h -= page.h;
    }
    if (m->loading && r.h > 2 && (!m->n_blocks || m->hints))
        loading_draw(c, r, m);
}

/* An item is expanded in the last focused panel: it gets its rows first, and others move to
 * tabs. */
static void request_opened(struct layout_panel *q, const struct ui_model *m, int index, int width,
                           int height)
{
    struct panel_view v = panel_view(m, index);
    int rows = panels[index]->opened ? panels[index]->opened(m, &v, width) : 0,
        room = height / 2 - 1; /* the map beside it marks the token's experts */

    if (!rows)
        return;
    q->want = rows;
    q->min = rows < room ? rows : room;
    q->whole = true;
}

/* Its explanation is open: shown completely, as far as the screen allows. */
static void explain_request(struct layout_panel *q, const struct ui_model *m, const struct panel *p,
                            int width, int height)
{
    int rows = panel_explain(NULL, (struct rect){0, 0, width, 0}, m, p), room = height - EXPLAIN_OF;

    q->want = q->most = rows;
    if (q->min < room)
        q->min = rows < room ? rows : room;
    q->whole = true;
}

static void request_make(struct layout_request *q, const struct ui_model *m, int w, int h,
                         int input_rows)
{
    int i,
        column = w >= 180  ? w / 5
                 : w < 100 ? w * 34 / 100
                           : w * 38 / 100,
        stage = w < 60 ? w : w - column - 1;
    bool two = layout_mode(w, h) == LAYOUT_TWO;

    memset(q, 0, sizeof *q);
    q->w = w;
    q->h = h;
    q->n_panels = PANEL_COUNT;
    q->focus = m->focus;
    q->zoom = m->zoom;
    q->input_rows = input_rows;
    q->keys = m->key_bar;
    for (i = 0; i < PANEL_COUNT; i++) {
        const struct panel *p = panels[i];
        bool across = two && p->across && p->across(m, column - 2), on_stage = panel_on_stage(p);
        int width = (on_stage ? stage : across ? 2 * column + 1 : column) - 2;

        q->panels[i] = (struct layout_panel){
            .open = m->open_panels >> i & 1,
            .min = p->least ? p->least(m) : p->min,
            .want = p->want(m, width),
            .grow = two && p->grow_wide ? p->grow_wide : p->grow,
            .most = p->most ? p->most(m, width) : 0,
            .step = p->step ? p->step(m, width) : 0,
            .priority = p->priority,
            .column = p->column,
            .whole = p->whole,
            .across = across,
            .stage = on_stage,
        };
        if (m->focus == i)
            request_opened(&q->panels[i], m, i, column - 2, h);
        if (m->explain && m->focus == i) {
            explain_request(&q->panels[i], m, p, width, h);
        }
    }
}

void screen_closing(struct ui_model *m)
{
    ui_model_closing(m);
    panels_reset(m);
}

void screen_draw(struct canvas *c, struct ui_model *m, const struct screen_input *in)
{
    struct layout_request q;
    struct layout l;
    int i, rows;

    canvas_clear(c);
    m->timeline_shown = false;
    request_make(&q, m, c->w, c->h, 1);
    layout_make(&l, &q);
    rows = input_rows_count(l.input, m, in);
    if (rows > 1) {
        request_make(&q, m, c->w, c->h, rows > INPUT_MOST ? INPUT_MOST : rows);
        layout_make(&l, &q);
    }
    title_draw(c, &l, m);
    m->expert_marked = m->focus >= 0 && panels[m->focus] == &panel_experts;
    if (m->focus < 0 || panels[m->focus] != &panel_tokens)
        ui_model_mark(m, 0);
    if (l.chat.h)
        chat_draw(c, l.chat, m);
    for (i = 0; i < PANEL_COUNT; i++)
        if (l.panels[i].h)
            panel_draw(c, l.panels[i], m, i);
    if (l.tabs.h)
        tabs_draw(c, &l, m);
    rules_draw(c, &l, m);
    if (in->above && l.input.h)
        above_draw(c, &l, m, in->above, in->marked);
    if (l.input.h && m->search.state != SEARCH_OFF)
        search_draw(c, l.input, m);
    else if (l.input.h)
        input_rows_draw(c, l.input, m, in);
    if (l.keys.h)
        key_bar_draw(c, l.keys, m);
    m->dirty = false;
}

static void focus_give(struct ui_model *m, int index)
{
    m->focus = index;
    m->letters = true;
    m->taken.n = 0;
    m->explain_top = 0;
    if (index >= 0 && panels[index]->focused) {
        struct panel_view v = panel_view(m, index);

        panels[index]->focused(m, &v);
    }
}

static void focus_move(struct ui_model *m, int step)
{
    int i, at = m->focus;

    m->explain = false;
    for (i = 0; i <= PANEL_COUNT; i++) {
        at += step;
        if (at >= PANEL_COUNT || at < -1)
            at = step > 0 ? -1 : PANEL_COUNT - 1;
        if (at == -1 || (m->open_panels >> at & 1))
            break;
    }
    focus_give(m, at);
    if (m->zoom >= 0)
        m->zoom = at;
}

/* Focuses the input line again, and resets the state of the focus. */
static void focus_leave(struct ui_model *m)
{
    if (m->zoom >= 0 && panels[m->zoom]->overlay)
        m->open_panels &= ~(1u << m->zoom);
    m->focus = m->zoom = -1;
}

static void overlay_toggle(struct ui_model *m, int index)
{
    if (m->zoom == index) {
        focus_leave(m);
        return;
    }
    m->open_panels |= 1u << index;
    m->zoom = m->focus = index;
    m->letters = false;
    if (panels[index]->state_size)
        memset(m->panel_state[index], 0, panels[index]->state_size);
}

/* The panel's zoom action: toggles full screen. */
static void zoom_toggle(struct ui_model *m, int index)
{
    if (panels[index]->overlay) {
        overlay_toggle(m, index);
        return;
    }
    m->zoom = m->zoom == index ? -1 : index;
    focus_give(m, m->zoom);
    m->open_panels |= 1u << index;
}

static void panel_toggle(struct ui_model *m, int index)
{
    if (!panel_there(m, index))
        return;
    m->open_panels ^= 1u << index;
    if (!(m->open_panels >> index & 1)) {
        m->focus = m->focus == index ? -1 : m->focus;
        m->zoom = m->zoom == index ? -1 : m->zoom;
    }
}

bool screen_letter(struct ui_model *m, char letter, uint64_t now)
{
    if (!m->letters)
        return false;
    if (m->taken.n == 0 || now - m->taken.at > UI_TAKEN_NS ||
        m->taken.n == (int)sizeof m->taken.text) {
        m->taken.n = 0;
        m->taken.heat = m->heat;
        m->taken.settle_ns = m->settle_ns;
    }
    m->taken.text[m->taken.n++] = letter;
    m->taken.at = now;
    return true;
}

int screen_typed(struct ui_model *m, uint64_t now, char out[8])
{
    int n = now - m->taken.at <= UI_TAKEN_NS ? m->taken.n : 0;

    if (n) {
        memcpy(out, m->taken.text, (size_t)n);
        m->heat = m->taken.heat;
        m->settle_ns = m->taken.settle_ns;
    }
    focus_leave(m);
    m->explain = false;
    m->taken.n = 0;
    m->dirty = true;
    return n;
}

/* An explanation that does not fit is scrolled. */
static bool explain_act(struct ui_model *m, enum action a)
{
    int step = a == ACTION_UP          ? -1
               : a == ACTION_DOWN      ? 1
               : a == ACTION_PAGE_UP   ? -5
               : a == ACTION_PAGE_DOWN ? 5
                                       : 0;

    m->explain_top += step; /* clamped when drawing */
    return step != 0;
}

void screen_panels(struct ui_model *m, unsigned open)
{
    m->open_panels = open;
    m->dirty = true;
    if (m->focus >= 0 && !(open >> m->focus & 1))
        focus_leave(m);
}

/* From a custom set: the first one. */
static void preset_next(struct ui_model *m)
{
    int k = preset_open(m) + 1;

    if (!preset_name(k))
        k = 0;
    screen_panels(m, preset_panels(m, k));
    ui_model_note(m, m->now, "panels: %s", preset_name(k));
}

static void settle_change(struct ui_model *m, int step)
{
    static const unsigned ms[] = {100, 250, 500, 1000, 2000, 5000, 10000};
    const int last = (int)(sizeof ms / sizeof ms[0]) - 1;
    int k = 0;

    while (k < last && ms[k] * 1000000ull < m->settle_ns)
        k++;
    k = k + step < 0 ? 0 : k + step > last ? last : k + step;
    m->settle_ns = ms[k] * 1000000ull;
    m->settle_at = 0;
    ui_model_note(m, m->now, "figures change every %g s", ms[k] * 1e-3);
}

/* Whether the focused panel handled the action. */
static bool panel_act(struct ui_model *m, enum action a)
{
    struct panel_view v;

    if (m->focus < 0 || !panels[m->focus]->act)
        return false;
    v = panel_view(m, m->focus);
    return panels[m->focus]->act(m, &v, a);
}

enum action screen_act(struct ui_model *m, enum action a, int index)
{
    int zoomed = panel_zoomed_by(m, a);

    m->dirty = true;
    if (m->explain && m->focus >= 0 && explain_act(m, a))
        return ACTION_NONE;
    if (panel_act(m, a))
        return ACTION_NONE;
    if (zoomed >= 0) {
        zoom_toggle(m, zoomed);
        return ACTION_NONE;
    }
    switch (a) {
    case ACTION_FOCUS_NEXT: focus_move(m, 1); return ACTION_NONE;
    case ACTION_FOCUS_PREVIOUS: focus_move(m, -1); return ACTION_NONE;
    case ACTION_FOCUS_LEAVE:
        focus_leave(m);
        m->explain = false;
        return ACTION_NONE;
    case ACTION_ZOOM: m->zoom = m->zoom >= 0 ? -1 : m->focus; return ACTION_NONE;
    case ACTION_HIDE:
        if (m->focus >= 0)
            panel_toggle(m, m->focus);
        return ACTION_NONE;
    case ACTION_EXPLAIN:
        m->explain = !m->explain && panel_explanation(m, panels[m->focus]);
        m->explain_top = 0;
        return ACTION_NONE;
    case ACTION_HEAT_MODE:
    case ACTION_MODE: ui_heat_next(m); return ACTION_NONE;
    case ACTION_THOUGHTS: m->thoughts_open = !m->thoughts_open; return ACTION_NONE;
    case ACTION_SCROLL_UP:
        chatview_scroll(m, m->chat_rows > 2 ? -(m->chat_rows - 2) : -1);
        return ACTION_NONE;
    case ACTION_SCROLL_DOWN:
        chatview_scroll(m, m->chat_rows > 2 ? m->chat_rows - 2 : 1);
        return ACTION_NONE;
    case ACTION_PAGE_UP: return screen_act(m, ACTION_SCROLL_UP, 0);
    case ACTION_PAGE_DOWN: return screen_act(m, ACTION_SCROLL_DOWN, 0);
    case ACTION_SCROLL_LINE_UP:
    case ACTION_UP: chatview_scroll(m, -1); return ACTION_NONE;
    case ACTION_SCROLL_LINE_DOWN:
    case ACTION_DOWN: chatview_scroll(m, 1); return ACTION_NONE;
    case ACTION_SEARCH:
        focus_leave(m);
        search_begin(m);
        return ACTION_NONE;
    case ACTION_ANSWER_BEFORE: chatview_answer(m, -1); return ACTION_NONE;
    case ACTION_ANSWER_AFTER: chatview_answer(m, 1); return ACTION_NONE;
    case ACTION_INK: m->ink = token_ink_next(m); return ACTION_NONE;
    case ACTION_KEY_BAR: m->key_bar = !m->key_bar; return ACTION_NONE;
    case ACTION_PRESET: preset_next(m); return ACTION_NONE;
    case ACTION_FASTER: settle_change(m, -1); return ACTION_NONE;
    case ACTION_SLOWER: settle_change(m, 1); return ACTION_NONE;
    case ACTION_SCROLL_TOP:
    case ACTION_FIRST: chatview_scroll_top(m); return ACTION_NONE;
    case ACTION_SCROLL_END:
    case ACTION_LAST: chatview_scroll_end(m); return ACTION_NONE;
    case ACTION_LEFT:
    case ACTION_RIGHT: return ACTION_NONE;
    case ACTION_TOGGLE:
        /* no such panel: an ordinary key */
        if (index >= panel_toggles())
            return m->focus >= 0 ? ACTION_NONE : ACTION_LINE;
        panel_toggle(m, index);
        return ACTION_NONE;
    default: return a;
    }
}

static bool search_key(struct ui_model *m, const struct input_event *ev)
{
    struct ui_search *f = &m->search;
    bool text = ev->kind == INPUT_KEY && ev->key >= 0x20 && ev->key < 0x200000 && !ev->mods &&
                ev->key != 0x7f;

    if (f->state == SEARCH_OFF)
        return false;
    m->dirty = true;
    if (ev->kind == INPUT_KEY && ev->key == 0x1b) {
        search_end(m);
    } else if (ev->kind == INPUT_KEY && (ev->key == KEY_UP || ev->key == KEY_DOWN) && !ev->mods) {
        search_step(m, ev->key == KEY_UP ? -1 : 1);
    } else if (f->state == SEARCH_TYPING && text) {
        search_type(m, ev->bytes, (size_t)ev->n_bytes);
    } else if (f->state == SEARCH_TYPING && ev->kind == INPUT_PASTE) {
        search_type(m, ev->paste, strcspn(ev->paste, "\n"));
    } else if (f->state == SEARCH_TYPING && (ev->key == 0x7f || ev->key == '\b')) {
        search_shorten(m);
    } else if (f->state == SEARCH_TYPING && ev->key == '\r') {
        f->state = f->hits ? SEARCH_WALKING : SEARCH_OFF;
    } else if (f->state == SEARCH_WALKING && text && (ev->key == 'n' || ev->key == 'N')) {
        search_step(m, ev->key == 'n' ? 1 : -1);
    } else if (ev->kind == INPUT_KEY && ev->key == ('f' & 0x1f)) {
        search_begin(m);
    } else if (ev->kind == INPUT_KEY && (ev->key < 0x20 || text || ev->key == '\r')) {
        search_end(m); /* any other key ends the search */
        return ev->key == '\r';
    } else {
        return false; /* scrolling works during a search */
    }
    return true;
}

bool screen_search_key(struct ui_model *m, const struct input_event *ev)
{
    bool taken = search_key(m, ev);

    if (taken && m->search.state != SEARCH_OFF && m->search.at >= 0)
        chatview_show(m, m->search.block, m->search.offset);
    return taken;
}

const struct key_binding *screen_key_at(const struct ui_model *m, int w, int h, int x, int y)
{
    struct layout_request q;
    struct layout l;

    request_make(&q, m, w, h, 1);
    layout_make(&l, &q);
    return l.keys.h && y == l.keys.y ? key_bar_at(l.keys, m, x) : NULL;
}

void screen_click(struct ui_model *m, int w, int h, int x, int y)
{
    struct layout_request q;
    struct layout l;
    int i;

    request_make(&q, m, w, h, 1);
    layout_make(&l, &q);
    m->focus = -1;
    if (x < l.chat.x + l.chat.w && y >= l.chat.y && y < l.chat.y + l.chat.h &&
        (m->asked = chatview_token(m, l.chat, x, y))) {
        m->open_panels |= 1u << panel_find("tokens");
        focus_give(m, panel_find("tokens"));
    }
    for (i = 0; i < PANEL_COUNT; i++) {
        struct rect r = l.panels[i];

        if (x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h)
            focus_give(m, i);
    }
    /* focused by a click: letters are still typed */
    m->letters = false;
    m->explain = false;
    m->dirty = true;
}

const char *screen_chosen_plan(const struct ui_model *m)
{
    struct panel_view v;

    if (m->focus < 0 || !panels[m->focus]->plan)
        return NULL;
    v = panel_view(m, m->focus);
    return panels[m->focus]->plan(m, &v);
}
