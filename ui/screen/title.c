/* See title.h. */
#include "ui/screen/title.h"
#include "ui/draw.h"

#include <stdio.h>
#include <string.h>

/* The engine's state, or how the newest answer ended. */
static void state_text(const struct ui_model *m, char *out, size_t size)
{
    const char *stop = draw_stop_word(m->last_stop);

    out[0] = 0;
    if (m->loading || m->serving || m->training)
        return;
    if (m->stopped)
        snprintf(out, size, "engine stopped");
    else if (m->running && m->prefilling)
        snprintf(out, size, "reading %.0f %%",
                 m->progress_total ? 100.0 * (double)m->progress_done / (double)m->progress_total
                                   : 0);
    else if (m->running)
        snprintf(out, size, "answering");
    else if (m->last_stop != STOP_NONE)
        snprintf(out, size, "%s", stop[0] ? stop : "complete");
}

/* "218/1024 "; a dash until the shown chat was computed. */
static void context_text(const struct ui_model *m, char *out, size_t size)
{
    if (m->forgotten)
        snprintf(out, size, "\u2013/%d ", m->live.context_size);
    else
        snprintf(out, size, "%d/%d ", m->live.context_used, m->live.context_size);
}

/* If there is no other line: the most important figures. */
static void title_training(struct canvas *c, struct rect r, const struct ui_model *m)
{
    const struct ui_training *t = m->training;
    char text[200], left[24], rate[16];

    snprintf(text, sizeof text, "step %d/%d · loss %.3f · %s left · %s tok/s", t->step, t->steps,
             t->loss, draw_time(left, t->left_s), draw_rate(rate, t->tok_s));
    canvas_text_fit(c, 0, 0, r.w, theme_style(&m->theme, ROLE_STYLE_BAR), text);
}

static void title_brief(struct canvas *c, struct rect r, const struct ui_model *m, double share)
{
    char text[200], context[16] = "–", rate[16], a[16];

    if (m->training) {
        title_training(c, r, m);
        return;
    }
    if (m->serving)
        snprintf(context, sizeof context, "%d/%d", m->serving->running, m->serving->n_sessions);
    else if (!m->forgotten)
        snprintf(context, sizeof context, "%.0f %%", share * 100);
    snprintf(text, sizeof text, "%s tok/s · %s · %s %s · %s",
             draw_rate(rate, m->shown.decode_tok_s), m->live.plan[0] ? ui_plan_now(m) : "–",
             m->serving ? "sessions" : "ctx", context,
             m->system.valid ? draw_size(a, (double)m->system.rss, true) : "");
    canvas_text_fit(c, 0, 0, r.w, theme_style(&m->theme, ROLE_STYLE_BAR),
                    m->loading ? "loading" : text);
}

/* Draws a part of the title from x on; returns the column after it. */
static int title_model(struct canvas *c, int x, int width, const struct ui_model *m,
                       struct style bar, struct style dim)
{
    char text[200];

    snprintf(text, sizeof text, "%s%s%s", m->model_name, m->model_type[0] ? " " : "",
             m->model_type);
    x += canvas_text_fit(c, x, 0, width >= 100 ? 44 : 30, bar, text);
    if (!m->loading)
        return x;
    if (m->serving && m->serving->unloaded)
        snprintf(text, sizeof text, " · unloaded");
    else
        snprintf(text, sizeof text, "%sloading %.0f %%", m->model_name[0] ? " · " : "",
                 m->progress_total ? 100.0 * (double)m->progress_done / (double)m->progress_total
                                   : 0);
    return canvas_text(c, x, 0, dim, text);
}

static int title_plan(struct canvas *c, int x, const struct ui_model *m, struct style bar,
                      struct style dim)
{
    struct style brand = theme_style(&m->theme, ROLE_STYLE_BRAND);

    if (m->live.plan[0]) {
        x = canvas_text(c, x, 0, dim, " · ");
        x += canvas_text_fit(c, x, 0, 20, bar, ui_plan_now(m));
    }
    if (m->wanted_plan[0]) {
        x = canvas_text(c, x, 0, brand, " ▹ ");
        x += canvas_text_fit(c, x, 0, 20, bar, m->wanted_plan);
        canvas_put(c, x + 1, 0, brand, draw_spinner(m->spin, m->theme.ascii));
        x += 2;
    }
    return x;
}

/* Cached tokens were recomputed for the newest message. */
static int cache_badge(struct canvas *c, int x, int end, const struct ui_model *m, struct style bar)
{
    struct style s = theme_style(&m->theme, ROLE_STYLE_TROUBLE);
    char text[32];
    int n = snprintf(text, sizeof text, m->theme.ascii ? " !%d" : " \u21ba%d", m->cache_lost);

    if (m->cache_lost <= 0 || x + n >= end)
        return x;
    s.bg = bar.bg;
    return canvas_text(c, x, 0, s, text);
}

static int title_context(struct canvas *c, int x, struct rect r, const struct ui_model *m,
                         double share, struct style bar, struct style dim)
{
    struct style fill = theme_style(&m->theme, share > 0.9 ? ROLE_STYLE_TROUBLE : ROLE_STYLE_GRAPH);
    int width = r.w >= 100 ? 10 : 5, end = r.x + r.w;
    char text[32];

    context_text(m, text, sizeof text);
    if (!m->live.context_size || x + 7 + (int)strlen(text) + 10 >= end)
        return x;
    x = canvas_text(c, x, 0, dim, " · ctx ");
    x = canvas_text(c, x, 0, bar, text);
    if (x + width + 9 >= end)
        return cache_badge(c, x, end - 9, m, bar);
    fill.bg = bar.bg;
    draw_bar(c, x, 0, width, share, fill, dim);
    return cache_badge(c, x + width, end - 9, m, bar);
}

/* A server's: number of active sessions, of waiting requests, and its address. */
static void title_serving(struct canvas *c, int x, struct rect r, const struct ui_model *m,
                          struct style bar, struct style dim)
{
    const struct ui_serving *s = m->serving;
    int end = r.x + r.w;
    char text[96];

    snprintf(text, sizeof text, "%d of %d session%s", s->running, s->n_sessions,
             s->n_sessions == 1 ? "" : "s");
    if (x + 3 + (int)strlen(text) + 10 < end) {
        x = canvas_text(c, x, 0, dim, " · ");
        x = canvas_text(c, x, 0, bar, text);
    }
    snprintf(text, sizeof text, ", %d waiting", s->waiting);
    if (s->waiting && x + (int)strlen(text) + 10 < end)
        x = canvas_text(c, x, 0, bar, text);
    snprintf(text, sizeof text, "%s", s->where);
    if (x + 4 + (int)strlen(text) + 10 < end) {
        canvas_text_right(c, end - 10, 0, dim, text);
        x = end - 10;
    }
    if (x + 9 < end)
        canvas_text_right(c, end - 1, 0, dim, "F1 help");
}

/* A training run's: progress, and remaining time. */
static void title_steps(struct canvas *c, int x, struct rect r, const struct ui_model *m,
                        struct style bar, struct style dim)
{
    const struct ui_training *t = m->training;
    int end = r.x + r.w;
    char text[64], left[24];

    snprintf(text, sizeof text, "step %d of %d", t->step, t->steps);
    if (x + 3 + (int)strlen(text) + 10 < end) {
        x = canvas_text(c, x, 0, dim, " · ");
        x = canvas_text(c, x, 0, bar, text);
    }
    snprintf(text, sizeof text, ", %s left", draw_time(left, t->left_s));
    if (t->left_s >= 0 && x + (int)strlen(text) + 10 < end)
        x = canvas_text(c, x, 0, bar, text);
    if (x + 9 < end)
        canvas_text_right(c, end - 1, 0, dim, "F1 help");
}

/* The first values that fit together, each a name and a figure: "temp 0.8 top-k 40". */
static bool sampling_fit(const char *all, int columns, char *out, size_t size)
{
    size_t fits = 0, at = 0;

    for (int words = 1; all[at]; words++) {
        at += strcspn(all + at, " ");
        if ((int)at <= columns && words % 2 == 0)
            fits = at;
        at += all[at] == ' ';
    }
    snprintf(out, size, "%.*s", (int)fits, all);
    return fits > 0;
}

void title_draw(struct canvas *c, const struct layout *l, const struct ui_model *m)
{
    const struct theme *t = &m->theme;
    struct rect r = l->title;
    struct style bar = theme_style(t, ROLE_STYLE_BAR), dim = theme_style(t, ROLE_STYLE_DIM);
    int x, end = r.x + r.w;
    double share = m->live.context_size ? (double)m->live.context_used / m->live.context_size : 0;
    char text[200];

    if (r.h < 1)
        return;
    dim.bg = bar.bg;
    canvas_fill(c, r, bar, ' ');
    if (l->mode == LAYOUT_LINE) {
        title_brief(c, r, m, share);
        return;
    }
    x = canvas_text(c, 1, 0, theme_style(t, ROLE_STYLE_BRAND), "moetop") + 2;
    x = title_model(c, x, r.w, m, bar, dim);
    x = title_plan(c, x, m, bar, dim);
    if (m->serving) {
        title_serving(c, x, r, m, bar, dim);
        return;
    }
    if (m->training) {
        title_steps(c, x, r, m, bar, dim);
        return;
    }
    x = title_context(c, x, r, m, share, bar, dim);
    state_text(m, text, sizeof text);
    if (text[0] && x + 3 + (int)strlen(text) + 10 < end) {
        bool trouble = m->last_stop == STOP_ERROR && !m->running;

        x = canvas_text(c, x, 0, dim, "  ");
        x = canvas_text(c, x, 0, trouble ? theme_style(t, ROLE_STYLE_TROUBLE) : dim, text);
    }
    if (r.w >= 80 && sampling_fit(m->sampling, end - x - 15, text, sizeof text)) {
        canvas_text_right(c, end - 10, 0, dim, text);
        x = end - 10;
    }
    if (x + 9 < end)
        canvas_text_right(c, end - 1, 0, dim, "F1 help");
}
