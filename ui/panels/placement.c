/* Placement: the current plan, pending moves, and for every plan used in this session its figures:
 * tokens, rate with its spread, share of the devices, and the cost of the split. Unused plans are
 * listed below for selection. */
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <stdio.h>
#include <string.h>

#define SHARED                                                                                     \
    "gpu: its share of the busy time; wait, copy: what the split costs a token",                   \
        "CPU only: what no other device here computes, blocks with adapters among it; it stays "   \
        "under every plan",                                                                        \
        "moving: blocks still on their way to their device; the answer goes on meanwhile",         \
        "at once: tokens of prompts and of answers that two sides computed at the same time, how " \
        "long that took, and how long both sides worked, added up",                                \
        "streamed: experts copied for a token; guessed: of those begun early, how many were then " \
        "asked "                                                                                   \
        "for"

static const char *const explain_server[] = {
    "a line for each plan and its key: decode tokens a second of one answer, however many are made "
    "beside it: the median of the newest tokens of all; half of them lie between the quartiles",
    SHARED,
    "prompts have a plan of their own with --place-prompt; p marks it",
    "Enter switches to the plan under the cursor; --place takes any other",
    NULL,
};
static const char *const explain[] = {
    "a line for each plan and its key: decode tokens a second, the median of its newest tokens; "
    "half of them lie between the quartiles",
    SHARED,
    "prompts have a plan of their own after /place prompt NAME; p marks it",
    "Enter switches to the plan under the cursor; /place NAME takes any other",
    NULL,
};

struct state {
    int cursor;      /* row of the list of plans */
    char chosen[64]; /* the name last requested */
};

/* Streamed experts: all of them, and how many came by a right prediction of the next layer's
 * choice. */
static bool streaming(const struct ui_model *m, struct device_stats *sum)
{
    *sum = (struct device_stats){0};
    for (int d = 1; d < m->live.n_devices; d++) {
        sum->stream_bytes += m->live.devices[d].stream_bytes;
        sum->streamed_bytes += m->live.devices[d].streamed_bytes;
        sum->prefetched += m->live.devices[d].prefetched;
        sum->prefetch_hits += m->live.devices[d].prefetch_hits;
    }
    return sum->stream_bytes > 0;
}

/* Prompts and tokens were computed at the same time. */
static bool at_once(const struct ui_model *m)
{
    return m->live.prompt_plan[0] && m->live.at_once.pieces;
}

static int placement_least(const struct ui_model *m)
{
    return ui_server_hides(&m->server) ? 1 : 2;
}

static int placement_want(const struct ui_model *m, int width)
{
    struct ui_plan_row rows[UI_PLANS];
    struct device_stats sum;
    int n = ui_plan_rows(m, rows, UI_PLANS);

    if (ui_server_hides(&m->server))
        return 1;
    return (n > 8 ? 8 : n) + 1 + (m->live.moves_pending > 0) + (m->wanted_plan[0] != 0) +
           (m->live.prompt_plan[0] != 0) + at_once(m) + (m->live.cpu_only[0] != 0) +
           streaming(m, &sum);
}

static int placement_most(const struct ui_model *m, int width)
{
    struct ui_plan_row rows[UI_PLANS];
    struct device_stats sum;

    if (ui_server_hides(&m->server))
        return 1;
    return ui_plan_rows(m, rows, UI_PLANS) + 4 + (m->live.prompt_plan[0] != 0) + at_once(m) +
           (m->live.cpu_only[0] != 0) + streaming(m, &sum);
}

static void placement_side(const struct ui_model *m, const struct panel_view *v, char *out,
                           size_t size)
{
    char a[16];

    if (m->live.moved_bytes)
        snprintf(out, size, "%s moved", draw_size(a, (double)m->live.moved_bytes, true));
    else
        snprintf(out, size, "%s", m->live.plan);
}

#define MARK_W 5 /* "▸F10 " */
/* End columns after the name. */
enum {
    GPU_ALONE_END = 14,
    QUARTILES_END = 17,
    GPU_END = 23,
    WAIT_END = 32,
    COPY_END = 40,
    TOKENS_END = 49,
    MEAN_END = 58,
    FIRST_END = 68
};

/* End of the gpu's share, 0: not shown. If space is short it replaces the quartiles, once there is
 * another device than the CPU. */
static int gpu_end(const struct ui_model *m, int room)
{
    return room >= GPU_END                                  ? GPU_END
           : room >= GPU_ALONE_END && m->live.n_devices > 1 ? GPU_ALONE_END
                                                            : 0;
}

/* Columns by width: key and name, median rate, quartiles, gpu share, wait, copy, tokens, mean,
 * ttft. */
static void header(struct canvas *c, struct rect r, const struct ui_model *m, int name_w)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    int x = r.x + MARK_W + name_w, room = r.w - MARK_W - name_w, gpu = gpu_end(m, room);

    canvas_text_right(c, x + 7, r.y, dim, "tok/s");
    if (room >= QUARTILES_END && gpu != GPU_ALONE_END)
        canvas_text(c, x + 8, r.y, dim, "quartiles");
    if (gpu)
        canvas_text_right(c, x + gpu, r.y, dim, "gpu");
    if (room >= COPY_END) {
        canvas_text_right(c, x + WAIT_END, r.y, dim, "wait µs");
        canvas_text_right(c, x + COPY_END, r.y, dim, "copy µs");
    }
    if (room >= FIRST_END) {
        canvas_text_right(c, x + TOKENS_END, r.y, dim, "tokens");
        canvas_text_right(c, x + MEAN_END, r.y, dim, "mean");
        if (!m->serving)
            canvas_text_right(c, x + FIRST_END, r.y, dim, "first ms");
    }
}

static double gpu_share(const struct plan_metrics *f)
{
    double all = 0, other = 0;
    int i;

    for (i = 0; i < DEVICE_MAX; i++) {
        all += f->share[i];
        other += i ? f->share[i] : 0;
    }
    return all > 0 ? other / all : 0;
}

/* Figures of a used plan, in columns from x on as far as they fit. */
static void row_figures(struct canvas *c, int x, int y, int room, const struct ui_model *m,
                        const struct plan_metrics *f, bool current)
{
    const struct theme *t = &m->theme;
    struct style dim = theme_style(t, ROLE_STYLE_DIM);
    double share = gpu_share(f);
    int gpu = gpu_end(m, room);
    char text[64], a[24];

    canvas_text_right(c, x + 7, y, theme_style(t, current ? ROLE_STYLE_FIGURE : ROLE_STYLE_TEXT),
                      draw_rate(a, f->median_tok_s));
    if (room >= QUARTILES_END && gpu != GPU_ALONE_END && f->tokens > 3) {
        int digits = f->q3_tok_s >= 99.5 ? 0 : 1;

        snprintf(text, sizeof text, "%.*f–%.*f", digits, f->q1_tok_s, digits, f->q3_tok_s);
        canvas_text(c, x + 8, y, dim, text);
    }
    if (gpu) {
        snprintf(text, sizeof text, "%.0f %%", share * 100);
        canvas_text_right(c, x + gpu, y,
                          theme_style(t, share > 0 ? ROLE_STYLE_GPU : ROLE_STYLE_DIM), text);
    }
    if (room >= COPY_END && f->tokens) {
        snprintf(text, sizeof text, "%.0f", (double)f->wait_ns / (double)f->tokens * 1e-3);
        canvas_text_right(c, x + WAIT_END, y, dim, text);
        snprintf(text, sizeof text, "%.0f", (double)f->transfer_ns / (double)f->tokens * 1e-3);
        canvas_text_right(c, x + COPY_END, y, dim, text);
    }
    if (room < FIRST_END)
        return;
    canvas_text_right(c, x + TOKENS_END, y, dim, draw_count(a, f->tokens));
    canvas_text_right(c, x + MEAN_END, y, dim, draw_rate(a, f->mean_tok_s));
    if (f->ttft_ns && !m->serving) { /* of one session */
        snprintf(text, sizeof text, "%.0f", (double)f->ttft_ns * 1e-6);
        canvas_text_right(c, x + FIRST_END, y, dim, text);
    }
}

static void row(struct canvas *c, struct rect r, const struct ui_model *m, int y,
                const struct ui_plan_row *p, int name_w, bool current, bool selected)
{
    const struct theme *t = &m->theme;
    struct style name = theme_style(t, current ? ROLE_STYLE_FIGURE : ROLE_STYLE_TEXT),
                 dim = theme_style(t, ROLE_STYLE_DIM);
    int x = r.x + MARK_W + name_w, room = r.w - MARK_W - name_w;
    bool wanted = strcmp(p->name, m->wanted_plan) == 0,
         prompts = strcmp(p->name, m->live.prompt_plan) == 0;

    if (selected) {
        name = theme_style(t, ROLE_STYLE_SELECT);
        canvas_fill(c, (struct rect){r.x, y, MARK_W + name_w, 1}, name, ' ');
    }
    if (current || wanted)
        canvas_put(c, r.x, y, selected ? name : theme_style(t, ROLE_STYLE_FOCUS),
                   wanted ? 0x25b9 : 0x25b8);
    else if (prompts)
        canvas_put(c, r.x, y, selected ? name : dim, 'p');
    if (p->key)
        canvas_printf(c, r.x + 1, y, selected ? name : dim, "F%d", p->key);
    canvas_text_fit(c, r.x + MARK_W, y, name_w, name, p->name);
    if (p->figures < 0)
        canvas_text_right(c, x + 7, y, dim, "–");
    else
        row_figures(c, x, y, room, m, &m->live.plans[p->figures], current);
}

/* "tokens cpu · prompts gpu 630 tok/s": both plans, the one that computes now bright. */
static void phases_draw(struct canvas *c, struct rect r, const struct ui_model *m, int y)
{
    const struct theme *t = &m->theme;
    struct style dim = theme_style(t, ROLE_STYLE_DIM), now = theme_style(t, ROLE_STYLE_FIGURE),
                 other = theme_style(t, ROLE_STYLE_TEXT);
    bool prompt = ui_plan_now(m) == m->live.prompt_plan;
    bool wide = (int)(strlen(m->live.plan) + strlen(m->live.prompt_plan)) + 18 <= r.w;
    int end = r.x + r.w, x = r.x;
    char a[24], text[40];

    if (wide)
        x += canvas_text_fit(c, x, y, end - x, dim, "tokens ");
    x += canvas_text_fit(c, x, y, (end - x) / 2, prompt ? other : now, m->live.plan);
    x += canvas_text_fit(c, x, y, end - x, dim, wide ? " · prompts " : ", prompts ");
    x += canvas_text_fit(c, x, y, end - x, prompt ? now : other, m->live.prompt_plan);
    for (int i = 0; i < m->live.n_plans && i < TELEMETRY_PLANS; i++) {
        const struct plan_metrics *p = &m->live.plans[i];

        if (strcmp(p->name, m->live.prompt_plan) || !p->prompt_tokens)
            continue;
        snprintf(text, sizeof text, " %s tok/s", draw_rate(a, p->prompt_tok_s));
        if (x + (int)strlen(text) <= end)
            canvas_text_fit(c, x, y, end - x, dim, text);
    }
}

/* "at once 764 and 310 tokens in 1.8 s, by turns 2.7": of prompts, of answers. */
static void at_once_draw(struct canvas *c, struct rect r, const struct ui_model *m, int y)
{
    const struct at_once_figures *f = &m->live.at_once;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[160], a[24], b[24];
    int x = r.x;

    snprintf(text, sizeof text, "%s and %s tokens", draw_count(a, f->rows),
             draw_count(b, f->tokens));
    x += canvas_text_fit(c, x, y, r.w, dim, "at once ");
    x += canvas_text_fit(c, x, y, r.x + r.w - x, theme_style(&m->theme, ROLE_STYLE_TEXT), text);
    snprintf(text, sizeof text, " in %.1f s, by turns %.1f", (double)f->ns * 1e-9,
             (double)f->turns_ns * 1e-9);
    if (x + (int)strlen(text) <= r.x + r.w)
        canvas_text_fit(c, x, y, r.x + r.w - x, dim, text);
}

static void placement_draw(struct canvas *c, struct rect r, struct ui_model *m,
                           const struct panel_view *v)
{
    const struct state *own = v->state;
    struct ui_plan_row rows[UI_PLANS];
    int n = ui_plan_rows(m, rows, UI_PLANS), i, y = r.y, top,
        name_w = r.w >= 31 ? 14 : r.w - MARK_W - 7, room, current = 0;
    char text[160], a[16];
    struct device_stats sum;

    if (ui_server_hides(&m->server)) {
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        "N/A (the server places)");
        return;
    }
    name_w = name_w < 4 ? 4 : name_w > 24 ? 24 : name_w;
    if (m->wanted_plan[0] && y < r.y + r.h) {
        bool opens = m->live.n_devices < 2 && strcmp(m->wanted_plan, "cpu") != 0;
        struct style s = theme_style(&m->theme, ROLE_STYLE_NEW);

        canvas_put(c, r.x, y, s, draw_spinner(m->spin, m->theme.ascii));
        snprintf(text, sizeof text, "%s %s …", opens ? "opening" : "switching to", m->wanted_plan);
        canvas_text_fit(c, r.x + 2, y++, r.w - 2, s, text);
    }
    if (m->live.moves_pending > 0 && y < r.y + r.h) {
        double done = (double)m->live.moved_bytes, all = done + (double)m->live.moves_pending_bytes;
        int x;

        snprintf(text, sizeof text, "moving %d, %s ", m->live.moves_pending,
                 draw_size(a, (double)m->live.moves_pending_bytes, true));
        x = canvas_text(c, r.x, y, theme_style(&m->theme, ROLE_STYLE_NEW), text);
        draw_bar(c, x, y, r.x + r.w - x, all > 0 ? done / all : 0,
                 theme_style(&m->theme, ROLE_STYLE_GPU), theme_style(&m->theme, ROLE_STYLE_RULE));
        y++;
    }
    if (m->live.prompt_plan[0] && y < r.y + r.h)
        phases_draw(c, r, m, y++);
    if (at_once(m) && r.y + r.h - y > 2)
        at_once_draw(c, r, m, y++);
    if (streaming(m, &sum) && y < r.y + r.h) {
        snprintf(text, sizeof text, "streamed %s", draw_size(a, (double)sum.streamed_bytes, true));
        if (sum.prefetched)
            snprintf(text + strlen(text), sizeof text - strlen(text), ", %.0f %% guessed",
                     100.0 * (double)sum.prefetch_hits / (double)sum.prefetched);
        canvas_text_fit(c, r.x, y++, r.w, theme_style(&m->theme, ROLE_STYLE_GPU), text);
    }
    if (m->live.cpu_only[0] && r.y + r.h - y > 2) {
        snprintf(text, sizeof text, "CPU only: %s", m->live.cpu_only);
        canvas_text_fit(c, r.x, y++, r.w, theme_style(&m->theme, ROLE_STYLE_DIM), text);
    }
    if (r.y + r.h - y > 2)
        header(c, (struct rect){r.x, y++, r.w, 1}, m, name_w);
    for (i = 0; i < n; i++)
        if (strcmp(rows[i].name, m->live.plan) == 0)
            current = i;
    room = r.y + r.h - y;
    top = v->focused ? own->cursor : current;
    top = top >= room ? top - room + 1 : 0;
    for (i = top; i < n && y < r.y + r.h; i++, y++)
        row(c, r, m, y, &rows[i], name_w, strcmp(rows[i].name, m->live.plan) == 0,
            v->focused && i == own->cursor);
}

static bool placement_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    struct state *s = v->state;
    struct ui_plan_row rows[UI_PLANS];
    int n = ui_plan_rows(m, rows, UI_PLANS), at = s->cursor;

    switch (a) {
    case ACTION_UP: at--; break;
    case ACTION_DOWN: at++; break;
    case ACTION_FIRST:
    case ACTION_PAGE_UP: at = 0; break;
    case ACTION_LAST:
    case ACTION_PAGE_DOWN: at = n - 1; break;
    default: return false;
    }
    s->cursor = at >= n ? n - 1 : at < 0 ? 0 : at;
    return true;
}

static const char *placement_plan(const struct ui_model *m, const struct panel_view *v)
{
    struct ui_plan_row rows[UI_PLANS];
    struct state *s = v->state;

    if (s->cursor >= ui_plan_rows(m, rows, UI_PLANS))
        return NULL;
    snprintf(s->chosen, sizeof s->chosen, "%s", rows[s->cursor].name);
    return s->chosen;
}

const struct panel panel_placement = {
    .name = "placement",
    .open = true,
    .state_size = sizeof(struct state),
    .column = 0,
    .priority = 3,
    .min = 2,
    .grow = 1,
    .least = placement_least,
    .want = placement_want,
    .most = placement_most,
    .draw = placement_draw,
    .side = placement_side,
    .act = placement_act,
    .plan = placement_plan,
    .explain = explain,
    .explain_server = explain_server,
    .keys = "arrows, Enter",
};
