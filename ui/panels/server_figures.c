/* See server_figures.h. */
#include "ui/panels/server_figures.h"

#include <math.h>
#include <stdio.h>

static void figure(char *out, size_t size, const char *format, double value, double scale)
{
    if (isnan(value))
        snprintf(out, size, "N/A");
    else
        snprintf(out, size, format, value * scale);
}

int server_figures_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    const struct ui_server *s = &m->server;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char a[24], b[24], text[96];
    int y = r.y;

    canvas_text_fit(c, r.x, y++, r.w, theme_style(&m->theme, ROLE_STYLE_GPU), s->host);
    if (s->why[0]) {
        if (r.h > 1)
            canvas_text_fit(c, r.x + 1, y++, r.w - 1, dim, s->why);
        return y - r.y;
    }
    if (r.h < SERVER_FIGURES_ROWS)
        return y - r.y;
    figure(a, sizeof a, "%.0f", s->running, 1);
    figure(b, sizeof b, "%.0f", s->waiting, 1);
    snprintf(text, sizeof text, "requests %s, %s waiting", a, b);
    canvas_text_fit(c, r.x + 1, y++, r.w - 1, dim, text);
    figure(a, sizeof a, "%.0f %%", s->kv, 100);
    figure(b, sizeof b, "%.0f %%", s->cached, 100);
    snprintf(text, sizeof text, "KV %s · cached %s", a, b);
    canvas_text_fit(c, r.x + 1, y++, r.w - 1, dim, text);
    figure(a, sizeof a, "%.0f tok/s", s->decode_tok_s, 1);
    snprintf(text, sizeof text, "all clients %s", a);
    canvas_text_fit(c, r.x + 1, y++, r.w - 1, dim, text);
    return y - r.y;
}
