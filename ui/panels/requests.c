/* Finished requests of a server, the newest at the bottom, and the program's messages in between.
 * Uses the rows of the chat's place that the sessions leave. */
#include "ui/draw.h"
#include "ui/panels/panel.h"

#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "a row for each request that is over: when, the status of HTTP, what was asked",
    "tokens: of the prompt (of them cached: not read again) + of the answer",
    "first: from the request to the first token; then to the last byte",
    "nothing of what was said is kept here or written anywhere",
    NULL,
};

struct state {
    int back; /* rows newer than the last one shown */
};

static int requests_want(const struct ui_model *m, int width)
{
    return 4;
}

static void requests_side(const struct ui_model *m, const struct panel_view *v, char *out,
                          size_t size)
{
    const struct ui_serving *s = m->serving;
    char a[24];
    int n;

    if (!s)
        return;
    n = snprintf(out, size, "%s answered", draw_count(a, s->completed));
    if (s->cancelled && n > 0 && (size_t)n < size)
        n += snprintf(out + n, size - (size_t)n, " · %s left", draw_count(a, s->cancelled));
    if (s->failed && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " · %s failed", draw_count(a, s->failed));
}

/* What stands behind the status, from what matters most. */
static void tell(const struct ui_request *q, char *out, size_t size)
{
    char first[16], all[16];
    int n = snprintf(out, size, "%s", q->what);

    if (q->prompt)
        n += snprintf(out + n, size - (size_t)n, "  %d (%d cached) + %d", q->prompt, q->cached,
                      q->made);
    draw_seconds(all, q->seconds);
    if (q->first_s > 0) {
        draw_seconds(first, q->first_s);
        n += snprintf(out + n, size - (size_t)n, "  first %s, %s", first, all);
    } else {
        n += snprintf(out + n, size - (size_t)n, "  %s", all);
    }
    if (q->text[0])
        n += snprintf(out + n, size - (size_t)n, "  %s", q->text);
    snprintf(out + n, size - (size_t)n, "  %s", q->who);
}

static void row_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m,
                     const struct ui_request *q)
{
    const struct theme *t = &m->theme;
    struct style dim = theme_style(t, ROLE_STYLE_DIM), text = theme_style(t, ROLE_STYLE_TEXT);
    char line[400];
    int x = r.x;

    if (r.w >= 50)
        x += canvas_text_fit(c, x, y, 9, dim, q->clock) + 1;
    if (!q->status) {
        canvas_text_fit(c, x, y, r.x + r.w - x, theme_style(t, ROLE_STYLE_NOTICE), q->text);
        return;
    }
    x = canvas_printf(c, x, y, q->status >= 400 ? theme_style(t, ROLE_STYLE_TROUBLE) : dim, "%d ",
                      q->status);
    tell(q, line, sizeof line);
    canvas_text_fit(c, x, y, r.x + r.w - x, text, line);
}

static void requests_draw(struct canvas *c, struct rect r, struct ui_model *m,
                          const struct panel_view *v)
{
    const struct ui_serving *s = m->serving;
    struct state *own = v->state;
    int kept, most, rows;

    if (!s)
        return;
    kept = s->n_requests < UI_REQUESTS ? (int)s->n_requests : UI_REQUESTS;
    most = kept > r.h ? kept - r.h : 0;
    own->back = own->back > most ? most : own->back < 0 ? 0 : own->back;
    rows = kept < r.h ? kept : r.h;
    for (int i = 0; i < rows; i++)
        row_draw(c, r, r.y + rows - 1 - i, m,
                 &s->requests[(s->n_requests - 1 - (uint64_t)(own->back + i)) % UI_REQUESTS]);
}

static bool requests_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    struct state *own = v->state;

    switch (a) {
    case ACTION_UP: own->back++; break;
    case ACTION_DOWN: own->back--; break;
    case ACTION_PAGE_UP: own->back += 10; break;
    case ACTION_PAGE_DOWN: own->back -= 10; break;
    case ACTION_FIRST: own->back = UI_REQUESTS; break;
    case ACTION_LAST: own->back = 0; break;
    default: return false;
    }
    return true; /* clamped when drawing */
}

const struct panel panel_requests = {
    .name = "requests",
    .open = true,
    .place = PANEL_OF_SERVER,
    .state_size = sizeof(struct state),
    .priority = 2,
    .min = 1,
    .grow = 1,
    .want = requests_want,
    .draw = requests_draw,
    .side = requests_side,
    .act = requests_act,
    .explain = explain,
    .keys = "arrows",
};
