/* Speed: the rate of computing now and as a history, what came before the first token, and how even the tokens are. Rates are those of the
 * computing; waiting for the pace is not in them. */
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panel.h"

#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "decode: tokens of the answer a second, computing time only: (tokens - 1) / (last - first)",
    "prefill: tokens of your message read a second",
    "first: from Enter to the first token of the answer",
    "token: computing time of the newest 128 tokens; half took less than p50, 95 % less than p95",
    "the graph: four bars a second, newest at the right",
    "paced: at most so many tokens a second are shown; F2 runs free",
    NULL,
};

static int want(const struct ui_model *m, int width)
{
    return width >= 36 ? 6 : 5;
}

static int most(const struct ui_model *m, int width)
{
    return 9;
}

static void side(const struct ui_model *m, char *out, size_t size)
{
    if (m->loading)
        snprintf(out, size, "loading");
    else if (m->live.state == ENGINE_PREFILL)
        snprintf(out, size, "reading");
    else if (m->live.state == ENGINE_DECODE)
        m->pace > 0 ? snprintf(out, size, "paced at %.4g/s", m->pace) : snprintf(out, size, "running free");
    else
        snprintf(out, size, "idle");
}

/* How the newest tokens' times spread: a bar for each eighth between the fastest and the slowest. */
static void spread(struct canvas *c, struct rect r, const struct ui_model *m)
{
    uint64_t n = m->live.recent_count < TELEMETRY_RECENT ? m->live.recent_count : TELEMETRY_RECENT, i;
    uint32_t low = UINT32_MAX, high = 0;
    int counts[64] = {0}, bins = r.w < 64 ? r.w : 64, top = 1, b;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);

    if (!n || bins < 2 || r.h < 3)
        return;
    for (i = 0; i < n; i++) {
        low = m->live.recent_us[i] < low ? m->live.recent_us[i] : low;
        high = m->live.recent_us[i] > high ? m->live.recent_us[i] : high;
    }
    for (i = 0; i < n; i++) {
        b = high > low ? (int)((uint64_t)(m->live.recent_us[i] - low) * (uint64_t)(bins - 1) / (high - low)) : 0;
        counts[b]++;
        top = counts[b] > top ? counts[b] : top;
    }
    canvas_printf(c, r.x, r.y, dim, "times of the newest %d tokens", (int)n);
    for (b = 0; b < bins; b++) {
        double height = (double)counts[b] / top * (r.h - 2);
        int y;

        for (y = 0; y < r.h - 2; y++) {
            double part = height - y;

            if (part > 0)
                canvas_put(c, r.x + b, r.y + r.h - 2 - y, theme_style(&m->theme, ROLE_STYLE_GRAPH), draw_level(part > 1 ? 1 : part < 0.125 ? 0.125 : part));
        }
    }
    canvas_printf(c, r.x, r.y + r.h - 1, dim, "%.2f ms", low * 1e-3);
    if (r.w > 24) {
        char text[32];

        snprintf(text, sizeof text, "%.2f ms", high * 1e-3);
        canvas_text_right(c, r.x + r.w, r.y + r.h - 1, dim, text);
    }
}

static void draw(struct canvas *c, struct rect r, struct ui_model *m)
{
    const struct ui_figures *f = &m->shown;
    char a[16], b[16], line[96];
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM), graph = theme_style(&m->theme, ROLE_STYLE_GRAPH);
    int wide = r.w >= 36, graph_rows = r.h - (wide ? 3 : 4), y = r.y, x;
    double top = draw_history_max(&m->decode, r.w * 2);
    int zoomed = r.h >= 16;

    x = panel_figure(c, r.x, y, m, "decode", 8, draw_rate(a, f->decode_tok_s), "tok/s");
    if (m->bytes_per_token > 0 && f->decode_tok_s > 0 && r.w >= 42) {
        snprintf(line, sizeof line, "%s/s of weights", draw_size(b, m->bytes_per_token * f->decode_tok_s, false));
        if (r.x + r.w - x > glyph_text_width(line, strlen(line)) + 1)
            canvas_text_right(c, r.x + r.w, y, dim, line);
    }
    y++;
    if (zoomed)
        graph_rows = r.h / 2;
    if (r.h < (wide ? 3 : 4))
        graph_rows = 0;
    if (graph_rows > 0) {
        draw_graph(c, (struct rect){r.x, y, r.w, graph_rows}, &m->decode, top * 1.05, graph);
        if (zoomed && top > 0) {
            snprintf(line, sizeof line, "%s tok/s", draw_rate(a, top));
            canvas_text(c, r.x, y, dim, line);
        }
        y += graph_rows;
    }
    x = panel_figure(c, r.x, y, m, "prefill", 8, draw_rate(a, f->prefill_tok_s), "tok/s");
    if (f->ttft_s >= 0) {
        if (f->ttft_s < 0.9995)
            snprintf(b, sizeof b, "%.0f ms", f->ttft_s * 1e3);
        else
            snprintf(b, sizeof b, "%.2f s", f->ttft_s);
    } else {
        snprintf(b, sizeof b, "–");
    }
    if (wide)
        panel_figure(c, r.x + 23, y, m, "first", 6, b, "");
    else
        panel_figure(c, r.x, ++y, m, "first", 8, b, "");
    y++;
    if (f->max_ms > 0)
        snprintf(line, sizeof line, wide ? "p50 %.2f  p95 %.2f  max %.1f ms" : "%.2f p95 %.2f ms", f->p50_ms, f->p95_ms, f->max_ms);
    else
        snprintf(line, sizeof line, "–");
    canvas_text(c, r.x, y, dim, "token");
    canvas_text_fit(c, r.x + 8, y, r.w - 8, theme_style(&m->theme, ROLE_STYLE_TEXT), line);
    if (zoomed) {
        snprintf(line, sizeof line, "this answer %d tokens · session %s", f->generated, draw_count((char[24]){0}, f->session_generated));
        canvas_text_fit(c, r.x, ++y, r.w, dim, line);
        spread(c, (struct rect){r.x, y + 2, r.w, r.y + r.h - y - 2}, m);
    }
}

const struct panel panel_speed = {
    .name = "speed", .help = "tokens a second now and as a history, time to the first token, how even the tokens are", .open = true,
    .column = 0, .priority = 1, .min = 2, .grow = 0, .want = want, .most = most, .draw = draw, .side = side, .explain = explain,
};
