/* Speed: the computing rate now and as a history, the time before the first token, and the spread
 * of token times. Rates exclude pacing. */
#include "engine/run/report/trace.h"
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "decode: tokens of the answer a second, computing time only: (tokens - 1) / (last - first)",
    "of memory speed: the weights that a token reads, times that rate, of what this machine's "
    "memory gave when it was measured; in cache, faster than memory: they need not come from there",
    "prefill: tokens of your message read a second",
    "first: from Enter to the first token of the answer",
    "token: computing time of the newest 128 tokens; half took less than p50, 95 % less than p95",
    "the graph: four bars a second, newest at the right",
    "paced: at most so many tokens a second are shown; F2 runs free",
    "drafts: tokens guessed ahead that were right, of all guessed; off: why none are",
    "with more room, or zoomed (z): where the time of one token goes, by device and layer, and how "
    "the times spread",
    NULL,
};
static const char *const explain_server[] = {
    "answers: tokens of all answers together, over the newest second",
    "prompts: tokens of all prompts that were read, over the newest second",
    "first: from a request to its first token, waiting for a session included: half of the newest "
    "64 took less, 95 % less than p95",
    "token: computing time of the newest 128 tokens of all answers; those of one pass all took the "
    "pass's",
    "a pass: answers that got a token in one pass through the model, mean of the newest second",
    "drafts: tokens that were drafted and right, of all drafted, in answers that are over",
    "the graph: answers, four bars a second, newest at the right",
    "with more room, or zoomed (z): where the time of one pass goes, by device and layer, and how "
    "the times spread",
    NULL,
};

/* Tokens were drafted, or there is a reason why not. */
static bool has_drafts(const struct ui_model *m)
{
    const struct speculation_figures *d = &m->live.speculation;

    return d->wanted && (d->drafted || d->why[0]);
}

/* Bytes of a text that fit on a line of so many cells, cut at a blank if there is one. */
static size_t line_of(const char *text, int cells)
{
    size_t n = strlen(text), cut = 0;

    if ((int)n <= cells)
        return n;
    for (size_t i = 1; cells > 0 && i <= (size_t)cells; i++)
        cut = text[i] == ' ' ? i : cut;
    return cut ? cut : cells > 0 ? (size_t)cells : n;
}

#define LABEL 8 /* cells of a label before a value */
#define WHY_LINES 3

/* Lines about drafts: the reason for not drafting is a sentence. */
static int draft_lines(const struct ui_model *m, int width)
{
    const char *why = m->live.speculation.why;
    int n = 0;

    if (!has_drafts(m))
        return 0;
    for (; *why && n < WHY_LINES; n++) {
        why += line_of(why, width - LABEL);
        why += *why == ' ';
    }
    return n > 1 ? n : 1;
}

/* Rows below the token times; a reason of several lines takes rows from the graph, not from other
 * panels. */
static int more_rows(const struct ui_model *m, int width)
{
    return m->serving ? 1 + (m->serving->drafted > 0) : draft_lines(m, width);
}

static int speed_want(const struct ui_model *m, int width)
{
    int more = more_rows(m, width);

    return (width >= 36 ? 6 : 5) + (m->serving || more < 1 ? more : 1);
}

static int speed_most(const struct ui_model *m, int width)
{
    return 29 + (m->live.n_layers < 40 ? m->live.n_layers : 40) + m->live.n_devices;
}

/* "2 answering · 1 reading" */
static void serving_side(const struct ui_serving *s, char *out, size_t size)
{
    int n = s->n_sessions < UI_SESSIONS ? s->n_sessions : UI_SESSIONS, reading = 0;

    for (int i = 0; i < n; i++)
        reading += s->sessions[i].state == UI_SESSION_READING;
    if (!s->running)
        snprintf(out, size, "idle");
    else if (!reading)
        snprintf(out, size, "%d answering", s->running);
    else if (reading == s->running)
        snprintf(out, size, "%d reading", reading);
    else
        snprintf(out, size, "%d answering · %d reading", s->running - reading, reading);
}

static void speed_side(const struct ui_model *m, const struct panel_view *v, char *out, size_t size)
{
    if (m->loading)
        snprintf(out, size, "loading");
    else if (m->serving)
        serving_side(m->serving, out, size);
    else if (m->live.state == ENGINE_PREFILL)
        snprintf(out, size, "reading");
    else if (m->live.state == ENGINE_DECODE)
        m->pace > 0 ? snprintf(out, size, "paced at %.4g/s", m->pace)
                    : snprintf(out, size, "running free");
    else
        snprintf(out, size, "idle");
}

/* Distribution of the newest tokens' times: a bar for each eighth between the fastest and the
 * slowest. */
static void spread(struct canvas *c, struct rect r, const struct ui_model *m)
{
    uint64_t n = m->live.recent_count < TELEMETRY_RECENT ? m->live.recent_count : TELEMETRY_RECENT,
             i;
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
        b = high > low ? (int)((uint64_t)(m->live.recent_us[i] - low) * (uint64_t)(bins - 1) /
                               (high - low))
                       : 0;
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
                canvas_put(c, r.x + b, r.y + r.h - 2 - y, theme_style(&m->theme, ROLE_STYLE_GRAPH),
                           draw_level(part > 1       ? 1
                                      : part < 0.125 ? 0.125
                                                     : part));
        }
    }
    canvas_printf(c, r.x, r.y + r.h - 1, dim, "%.2f ms", low * 1e-3);
    if (bins > 24) {
        char text[32];

        snprintf(text, sizeof text, "%.2f ms", high * 1e-3);
        canvas_text_right(c, r.x + bins, r.y + r.h - 1, dim, text);
    }
}

/* Attention, routing and the rest are distinguished by texture, devices by colour. */
static uint32_t span_glyph(int kind)
{
    return kind == TRACE_ATTENTION                         ? 0x2593
           : kind == TRACE_EXPERTS || kind == TRACE_LAYERS ? 0x2588
           : kind == TRACE_HEAD                            ? 0x259a
                                                           : 0x2591;
}

/* One token, traced about once a second while this is shown: a lane for each device, then the time
 * of each layer. Returns rows used. */
static int timeline(struct canvas *c, struct rect r, struct ui_model *m)
{
    const struct telemetry *t = &m->live;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    uint32_t total = 1, most = 1, layer_us[256] = {0}, experts_us[256] = {0};
    int lanes = t->n_devices > 0 ? t->n_devices : 1, lane_w = r.w - 5, begin = r.y, i, x, y,
        layers = t->n_layers < 256 ? t->n_layers : 256, rows;

    if (r.h < 3 || lane_w < 8)
        return 0;
    m->timeline_shown = true;
    if (!t->n_spans) {
        canvas_text_fit(c, r.x, r.y, r.w, dim,
                        r.w < 60 ? "a token's time: with the next answer"
                                 : "where the time of a token goes: shown with the next answer");
        return 1;
    }
    for (i = 0; i < t->n_spans; i++) {
        const struct telemetry_span *s = &t->spans[i];

        total = s->start_us + s->duration_us > total ? s->start_us + s->duration_us : total;
        if (s->layer >= 0 && s->layer < layers) {
            layer_us[s->layer] += s->duration_us;
            experts_us[s->layer] += s->kind == TRACE_EXPERTS ? s->duration_us : 0;
            most = layer_us[s->layer] > most ? layer_us[s->layer] : most;
        }
    }
    x = canvas_printf(c, r.x, r.y, dim, m->serving ? "one pass, %.2f ms" : "one token, %.2f ms",
                      total * 1e-3);
    /* the legend of the textures takes a separate row */
    if (r.x + r.w - x < 42) {
        r.y++;
        r.h--;
        x = r.x - 2;
    }
    canvas_text_fit(c, x + 2, r.y, r.x + r.w - x - 2, dim,
                    r.w < 40 ? "▓ attention █ experts ░ route ▚ head"
                             : "▓ attention █ experts ░ routing ▚ head");
    for (i = 0; i < lanes && i + 1 < r.h; i++)
        canvas_text(c, r.x, r.y + 1 + i, theme_device(&m->theme, i), ui_device_word(m, i));
    for (i = 0; i < t->n_spans; i++) {
        const struct telemetry_span *s = &t->spans[i];
        int from = (int)((uint64_t)s->start_us * (uint64_t)lane_w / total),
            to = (int)((uint64_t)(s->start_us + s->duration_us) * (uint64_t)lane_w / total);

        if (s->device >= lanes || 1 + s->device >= r.h)
            continue;
        for (x = from; x <= to && x < lane_w; x++)
            canvas_put(c, r.x + 5 + x, r.y + 1 + s->device, theme_device(&m->theme, s->device),
                       span_glyph(s->kind));
    }
    y = 1 + lanes + 1;
    rows = r.h - y;
    for (i = 0; i < layers && i < rows; i++) {
        int bar_w = r.w - 16,
            width = bar_w > 0 ? (int)((uint64_t)layer_us[i] * (uint64_t)bar_w / most) : 0;
        int experts_w = layer_us[i] ? (int)((uint64_t)experts_us[i] * (uint64_t)width / layer_us[i])
                                    : 0;

        canvas_printf(c, r.x, r.y + y + i, dim, "L%d", i);
        for (x = 0; x < width; x++)
            canvas_put(c, r.x + 5 + x, r.y + y + i, theme_style(&m->theme, ROLE_STYLE_GRAPH),
                       x < width - experts_w ? 0x2593 : 0x2588);
        canvas_printf(c, r.x + r.w - 10, r.y + y + i, dim, "%7u µs", layer_us[i]);
    }
    return r.y - begin + y + (layers < rows ? layers : rows);
}

/* A pass makes several tokens, which share the reading of the weights. */
static bool drafts_are_on(const struct ui_model *m)
{
    return has_drafts(m) && !*m->live.speculation.why && m->live.speculation.rows > 0;
}

/* Text at the right of the decode rate, from long to short; false: none in this form. */
static bool speed_of_light(const struct ui_model *m, int form, char *out, size_t size)
{
    char bytes[16];
    const char *share = m->memory_share;
    int percent = (int)strcspn(share, "%");

    if (drafts_are_on(m))
        return false;
    draw_size(bytes, m->bytes_per_token * m->shown.decode_tok_s, false);
    switch (form) {
    case 0:
        snprintf(out, size, "%s/s, %s", bytes, share);
        return m->bytes_per_token > 0 && share[0];
    case 1: snprintf(out, size, "%s", share); return share[0] != 0;
    case 2:
        snprintf(out, size, "%.*s%% mem", percent, share);
        return share[0] && share[percent] == '%';
    default:
        snprintf(out, size, "%s/s of weights", bytes);
        return m->bytes_per_token > 0 && !share[0];
    }
}

/* The longest form that fits. */
static void token_times(const struct ui_metrics *f, int width, char *out, size_t size)
{
    snprintf(out, size, "–");
    for (int form = 0; f->max_ms > 0 && form < 5; form++) {
        switch (form) {
        case 0:
            snprintf(out, size, "p50 %.2f  p95 %.2f  max %.1f ms", f->p50_ms, f->p95_ms, f->max_ms);
            break;
        case 1: snprintf(out, size, "p50 %.2f  p95 %.2f ms", f->p50_ms, f->p95_ms); break;
        case 2: snprintf(out, size, "%.2f p95 %.2f ms", f->p50_ms, f->p95_ms); break;
        case 3: snprintf(out, size, "%.2f ms", f->p50_ms); break;
        default: snprintf(out, size, "%.1f", f->p50_ms); break;
        }
        if ((int)strlen(out) <= width)
            return;
    }
}

/* What drafts do, or why there are none, on so many lines; the last one's row. */
static int draw_drafts(struct canvas *c, struct rect r, const struct ui_model *m, int y, int lines)
{
    const struct speculation_figures *d = &m->live.speculation;
    struct style text = theme_style(&m->theme, ROLE_STYLE_TEXT);
    const char *why = d->why;
    char line[96];

    canvas_text(c, r.x, y, theme_style(&m->theme, ROLE_STYLE_DIM), "drafts");
    if (!*why) {
        snprintf(line, sizeof line, "%llu/%llu  %d a pass  %+.0f %%",
                 (unsigned long long)d->accepted, (unsigned long long)d->drafted, d->rows,
                 100 * d->gain);
        canvas_text_fit(c, r.x + LABEL, y, r.w - LABEL, text, line);
        return y;
    }
    for (int i = 0; i < lines && *why; i++, y++) {
        size_t n = i + 1 < lines ? line_of(why, r.w - LABEL) : strlen(why);

        snprintf(line, sizeof line, "%.*s", (int)n, why);
        canvas_text_fit(c, r.x + LABEL, y, r.w - LABEL, text, line);
        why += n;
        why += *why == ' ';
    }
    return y - 1;
}

/* The i-th of a server's rows below the times of tokens: its label. */
static const char *serving_row(const struct ui_serving *s, int i, char *out, size_t size)
{
    if (i > 0) {
        snprintf(out, size, "%llu/%llu  %.0f %%", (unsigned long long)s->accepted,
                 (unsigned long long)s->drafted, 100.0 * (double)s->accepted / (double)s->drafted);
        return "drafts";
    }
    if (s->answers_a_pass > 0)
        snprintf(out, size, "%.1f answer%s", s->answers_a_pass, s->answers_a_pass > 1 ? "s" : "");
    else
        snprintf(out, size, "–");
    return "a pass";
}

/* Draws so many rows below the token times; returns the last one's row. */
static int draw_more(struct canvas *c, struct rect r, const struct ui_model *m, int y, int rows)
{
    char line[96];

    if (!m->serving)
        return rows ? draw_drafts(c, r, m, y + 1, rows) : y;
    for (int i = 0; i < rows; i++) {
        const char *label = serving_row(m->serving, i, line, sizeof line);

        canvas_text(c, r.x, ++y, theme_style(&m->theme, ROLE_STYLE_DIM), label);
        canvas_text_fit(c, r.x + LABEL, y, r.w - LABEL, theme_style(&m->theme, ROLE_STYLE_TEXT),
                        line);
    }
    return y;
}

static void speed_draw(struct canvas *c, struct rect r, struct ui_model *m,
                       const struct panel_view *v)
{
    const struct ui_metrics *f = &m->shown;
    char a[16], b[16], line[96];
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM),
                 graph = theme_style(&m->theme, ROLE_STYLE_GRAPH);
    int wide = r.w >= 36, plain = wide ? 3 : 4, more = more_rows(m, r.w), lines, graph_rows,
        y = r.y, x;
    /* during prefill only that is shown */
    const struct ui_history *shown = m->prefilling && m->prefill.count ? &m->prefill : &m->decode;
    double top = draw_history_max(shown, r.w * 2);
    int zoomed = r.h >= 16;

    if (!m->serving && more > 1 && more > r.h - plain - 1) /* a row of the graph stays */
        more = r.h - plain - 1 > 1 ? r.h - plain - 1 : 1;
    more = more < r.h - plain ? more : r.h > plain ? r.h - plain : 0;
    lines = plain + more;
    graph_rows = r.h - lines;
    x = panel_figure(c, r.x, y, m, m->serving ? "answers" : "decode", 8,
                     draw_rate(a, f->decode_tok_s), "tok/s");
    for (int form = 0; form < 4 && f->decode_tok_s > 0; form++) { /* the longest that fits */
        int room = r.x + r.w - x - 1;

        if (!speed_of_light(m, form, line, sizeof line) ||
            glyph_text_width(line, strlen(line)) > room)
            continue;
        canvas_text_right(c, r.x + r.w, y, dim, line);
        break;
    }
    y++;
    if (zoomed)
        graph_rows = r.h / 5 < 4 ? 4 : r.h / 5;
    if (r.h < lines)
        graph_rows = 0;
    if (graph_rows > 0) {
        draw_graph(c, (struct rect){r.x, y, r.w, graph_rows}, shown, top * 1.05, graph);
        if (zoomed && top > 0) {
            snprintf(line, sizeof line, "%s tok/s", draw_rate(a, top));
            canvas_text(c, r.x, y, dim, line);
        }
        y += graph_rows;
    }
    x = panel_figure(c, r.x, y, m, m->serving ? "prompts" : "prefill", 8,
                     draw_rate(a, f->prefill_tok_s), "tok/s");
    if (f->ttft_s >= 0)
        draw_seconds(b, f->ttft_s);
    else
        snprintf(b, sizeof b, "–");
    if (wide)
        x = panel_figure(c, r.x + 23, y, m, "first", 6, b, "");
    else
        x = panel_figure(c, r.x, ++y, m, "first", 8, b, "");
    if (m->serving && m->serving->first_p95_s > 0 && r.x + r.w - x >= 12) {
        snprintf(line, sizeof line, "p95 %s", draw_seconds(a, m->serving->first_p95_s));
        canvas_text(c, x + 2, y, dim, line);
    }
    y++;
    token_times(f, r.w - 8, line, sizeof line);
    canvas_text(c, r.x, y, dim, "token");
    canvas_text_fit(c, r.x + 8, y, r.w - 8, theme_style(&m->theme, ROLE_STYLE_TEXT), line);
    y = draw_more(c, r, m, y, more);
    if (zoomed) {
        if (m->serving)
            snprintf(line, sizeof line, "%s tokens since the start",
                     draw_count((char[24]){0}, f->session_generated));
        else
            snprintf(line, sizeof line,
                     r.w < 40 ? "answer %d · session %s tokens"
                              : "this answer %d · this session %s tokens",
                     f->generated, draw_count((char[24]){0}, f->session_generated));
        canvas_text_fit(c, r.x, ++y, r.w, dim, line);
        y += 2;
        y += timeline(c, (struct rect){r.x, y, r.w, r.y + r.h - y}, m) + 1;
        spread(c, (struct rect){r.x, y, r.w, r.y + r.h - y < 10 ? r.y + r.h - y : 10}, m);
    }
}

const struct panel panel_speed = {
    .name = "speed",
    .open = true,
    .column = 0,
    .priority = 1,
    .min = 2,
    .grow = 0,
    .grow_wide = 4,
    .want = speed_want,
    .most = speed_most,
    .draw = speed_draw,
    .side = speed_side,
    .explain = explain,
    .explain_server = explain_server,
};
