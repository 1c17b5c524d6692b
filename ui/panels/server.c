/* What a remote server (--connect) reports of itself, of all its clients together. */
#include "ui/draw.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>

static const char *const explain[] = {
    "what the server reports of itself, every two seconds; N/A: it does not report this",
    "requests: of all its clients, those being answered and those that wait",
    "decode: tokens of all its answers a second",
    "prompts: prompt tokens that it computes a second, cached ones not counted",
    "kv: share of its KV cache in use; cached: share of all prompt tokens since its start that "
    "were "
    "in the cache",
    "drafts: drafted tokens that were right, of all drafted since its start; a pass: tokens that a "
    "pass with drafts gives",
    NULL,
};

#define LABEL 9 /* cells of a label before a value */
#define ROWS 5

static int server_want(const struct ui_model *m, int width)
{
    return m->server.why[0] ? 1 : m->server.whole ? 3 : ROWS;
}

static int server_most(const struct ui_model *m, int width)
{
    return m->server.why[0] ? 1 : ROWS;
}

static void server_side(const struct ui_model *m, const struct panel_view *v, char *out,
                        size_t size)
{
    snprintf(out, size, "%s", m->server.host);
}

/* "44 %" */
static const char *share(char out[16], double value)
{
    if (isnan(value))
        snprintf(out, 16, "N/A");
    else
        snprintf(out, 16, "%.0f %%", 100 * value);
    return out;
}

static const char *number(char out[24], double value)
{
    if (isnan(value))
        snprintf(out, 24, "N/A");
    else
        draw_count(out, value < 1e15 ? (uint64_t)value : UINT64_MAX);
    return out;
}

static void text_row(struct canvas *c, struct rect r, int y, const struct ui_model *m,
                     const char *label, const char *text)
{
    canvas_text_fit(c, r.x, y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM), label);
    canvas_text_fit(c, r.x + LABEL, y, r.w - LABEL, theme_style(&m->theme, ROLE_STYLE_TEXT), text);
}

static void rate_row(struct canvas *c, struct rect r, int y, const struct ui_model *m,
                     const char *label, double rate)
{
    char a[16];

    if (isnan(rate))
        text_row(c, r, y, m, label, "N/A");
    else
        panel_figure(c, r.x, y, m, label, LABEL, rate > 0 ? draw_rate(a, rate) : "0", "tok/s");
}

static void requests_row(struct canvas *c, struct rect r, int y, const struct ui_model *m)
{
    char a[24], b[24], text[80];

    snprintf(text, sizeof text, "%s, %s wait%s", number(a, m->server.running),
             number(b, m->server.waiting), r.w >= LABEL + 20 ? "ing" : "");
    text_row(c, r, y, m, "requests", text);
}

static void cache_row(struct canvas *c, struct rect r, int y, const struct ui_model *m)
{
    char a[16], b[16], text[80];

    snprintf(text, sizeof text, r.w < LABEL + 18 ? "%s, cache %s" : "%s · cached %s",
             share(a, m->server.kv), share(b, m->server.cached));
    text_row(c, r, y, m, "kv", text);
}

static void drafts_row(struct canvas *c, struct rect r, int y, const struct ui_model *m)
{
    char a[16], text[80];
    int n = snprintf(text, sizeof text, "%s", share(a, m->server.accepted));

    if (!isnan(m->server.draft_length))
        snprintf(text + n, sizeof text - (size_t)n, ", %.1f a pass", m->server.draft_length);
    text_row(c, r, y, m, "drafts", text);
}

/* With few rows the first ones stay. */
static void server_draw(struct canvas *c, struct rect r, struct ui_model *m,
                        const struct panel_view *v)
{
    const struct ui_server *s = &m->server;
    int bottom = r.y + r.h, y = r.y;

    if (s->why[0]) {
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM), s->why);
        return;
    }
    if (y < bottom)
        requests_row(c, r, y++, m);
    if (y < bottom)
        rate_row(c, r, y++, m, "decode", s->decode_tok_s);
    if (y < bottom)
        cache_row(c, r, y++, m);
    if (y < bottom)
        rate_row(c, r, y++, m, "prompts", s->prompt_tok_s);
    if (y < bottom)
        drafts_row(c, r, y++, m);
}

const struct panel panel_server = {
    .name = "server",
    .place = PANEL_OF_CONNECTED,
    .open = true,
    .column = 0,
    .priority = 2,
    .min = 1,
    .grow = 0,
    .want = server_want,
    .most = server_most,
    .draw = server_draw,
    .side = server_side,
    .explain = explain,
};
