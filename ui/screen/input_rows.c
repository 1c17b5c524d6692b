/* See input_rows.h. */
#include "ui/screen/input_rows.h"
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <stdio.h>
#include <string.h>

/* Rows and cursor of the input text at a width; draws if c is given, from row `top` on. Newlines
 * are kept here. */
static int input_flow(struct canvas *c, struct rect r, const struct ui_model *m,
                      const struct screen_input *in, int top, int *cursor_x, int *cursor_y)
{
    int prompt_w = glyph_text_width(in->prompt, strlen(in->prompt)), width = r.w - prompt_w, x = 0,
        y = 0;
    struct style s = theme_style(&m->theme, ROLE_STYLE_INPUT);
    size_t at = 0;

    if (width < 2) {
        prompt_w = 0;
        width = r.w > 0 ? r.w : 1;
    }
    *cursor_x = *cursor_y = 0;
    while (at <= in->len) {
        struct glyph g;
        int w;

        if (at == in->cursor) {
            *cursor_x = prompt_w + x;
            *cursor_y = y;
            /* after the last cell: the next row */
            if (x >= width) {
                *cursor_x = prompt_w;
                *cursor_y = y + 1;
            }
        }
        if (at == in->len)
            break;
        g = glyph_next(in->text + at, in->len - at);
        if (in->cursor > at && in->cursor < at + (size_t)g.bytes)
            *cursor_x = prompt_w + x, *cursor_y = y;
        w = g.kind == GLYPH_SHOWN ? g.width : g.kind == GLYPH_TAB ? 1 : 0;
        if (g.kind == GLYPH_NEWLINE || x + w > width) {
            y++;
            x = 0;
        }
        if (g.kind != GLYPH_NEWLINE) {
            if (c && y >= top && y - top < r.h)
                canvas_text_n(c, r.x + prompt_w + x, r.y + y - top, s, in->text + at,
                              (size_t)g.bytes);
            x += w;
        }
        at += (size_t)g.bytes;
    }
    return (*cursor_y > y ? *cursor_y : y) + 1;
}

int input_rows_count(struct rect r, const struct ui_model *m, const struct screen_input *in)
{
    int cx, cy;

    return input_flow(NULL, r, m, in, 0, &cx, &cy);
}

static const char *serving_hint(const struct ui_serving *s)
{
    return s->draining ? "ending what is under way; q again ends it at once"
           : !s->ready ? "requests are answered as soon as the model is there"
                       : "q ends what is under way, and quits";
}

static const char *training_hint(const struct ui_training *t)
{
    return t->text[0]  ? t->text
           : t->ending ? "writing a checkpoint"
           : t->step == t->steps
               ? "writing the adapter"
               : "q writes a checkpoint, and quits; the same command goes on there";
}

/* What can be done about a server that is waited for. */
static const char *server_hint(const struct ui_model *m, char *out, size_t size)
{
    snprintf(out, size, "%s%s", m->server.waits, m->live.state != ENGINE_IDLE ? "; Esc stops" : "");
    return out;
}

/* Text of the empty input line: the focused panel, or what can be done. */
static void hint_text(const struct ui_model *m, char *out, size_t size)
{
    const struct panel *p = m->focus >= 0 ? panels[m->focus] : NULL;
    char server[220];

    if (p)
        snprintf(out, size, "%s: %s%s%s%sEsc back", p->name, p->keys ? p->keys : "",
                 p->keys ? ", " : "", m->letters ? "z, ?, " : "", p->overlay ? "" : "Alt-x, ");
    else
        snprintf(out, size, "%s",
                 m->note[0]           ? m->note
                 : m->serving         ? serving_hint(m->serving)
                 : m->training        ? training_hint(m->training)
                 : m->server.waits[0] ? server_hint(m, server, sizeof server)
                 : m->waiting[0]      ? ""
                 : m->stopped         ? "the engine has stopped"
                 : m->loading         ? "you may type while the model is loading"
                 : m->running         ? "Esc stops the answer"
                 : ui_model_asked(m)  ? ""
                                      : "say something, or /help");
}

void input_rows_draw(struct canvas *c, struct rect r, struct ui_model *m,
                     const struct screen_input *in)
{
    int cx, cy, rows, top;
    struct rect before = canvas_clip(c, r);

    rows = input_flow(NULL, r, m, in, 0, &cx, &cy);
    top = rows > r.h ? cy - r.h + 1 : 0;
    top = top < 0 ? 0 : top;
    if (top == 0)
        canvas_text(c, r.x, r.y, theme_style(&m->theme, ROLE_STYLE_PROMPT), in->prompt);
    input_flow(c, r, m, in, top, &cx, &cy);
    if (!in->len && r.w >= 34 && in->prompt[0] && strlen(in->prompt) <= 3) {
        char hint[240];

        hint_text(m, hint, sizeof hint);
        canvas_text_fit(c, r.x + 2, r.y, r.w - 3, theme_style(&m->theme, ROLE_STYLE_DIM), hint);
    }
    if (m->focus < 0 && !m->serving && !m->training && cx < r.w && cy - top >= 0 &&
        cy - top < r.h) {
        c->cursor_x = r.x + cx;
        c->cursor_y = r.y + cy - top;
    }
    canvas_clip_set(c, before);
}
