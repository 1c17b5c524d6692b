/* Devices: utilisation and memory of each. The CPU's bars show one core each: bright for this
 * process, dim for others. */
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "a bar for each core: this process, and all others beside it (grey)",
    "the percentage is of all cores together; cores: what top calls 100 %",
    "decode, with cores of several kinds: threads on the fast ones, and on others with their share "
    "of a fast one's work, as fast as they were measured to be",
    "holds: weights, keys and values that live on the device",
    "GPU: busy share of the engine that computes; N/A says why it cannot be read",
    "audited: jobs that the CPU computed as well (--audit); WRONG: one of them differed, and the "
    "device gets no more work",
    "wait, copy: time a token the host waited for the device and spent on copies",
    "zoomed (z): how busy each was, newest at the right, a bar for each time its figures changed; "
    "the CPU's is this process, of all cores",
    NULL,
};

#define LEAST_PAST 4 /* least rows of a device's history: its name, a graph of two, a blank */
#define LYING 9      /* columns per core from which its bar is horizontal */

static int core_rows(const struct ui_model *m, int width)
{
    int per_row = width - 5;

    return m->system.n_cores > 0 && per_row > 0 ? (m->system.n_cores + per_row - 1) / per_row : 1;
}

static int devices_want(const struct ui_model *m, int width)
{
    int extra = m->live.n_devices > 1 ? m->live.n_devices - 1 : 0, rows = core_rows(m, width);

    return (rows > 3 ? 3 : rows) + 1 + (m->live.devices[0].fast_threads > 0) + 2 * extra;
}

static int devices_most(const struct ui_model *m, int width)
{
    return devices_want(m, width) + 2;
}

static void devices_side(const struct ui_model *m, const struct panel_view *v, char *out,
                         size_t size)
{
    if (m->system.valid && !isnan(m->system.process_cores))
        snprintf(out, size, "%.2f of %d cores", m->system.process_cores, m->system.n_cores);
}

/* One core as a horizontal bar: this process, then all others. */
static void core_meter(struct canvas *c, int x, int y, int width, double own, double all,
                       const struct theme *t)
{
    struct style mine = theme_style(t, ROLE_STYLE_CPU), others = theme_style(t, ROLE_STYLE_DIM),
                 ground = theme_style(t, ROLE_STYLE_RULE);
    int own8 = (int)(own * width * 8 + 0.5), all8 = (int)(all * width * 8 + 0.5), i;

    for (i = 0; i < width; i++) {
        int a = own8 - i * 8, b = all8 - i * 8;

        if (a > 0 && a < 8) {
            struct style s = mine;

            s.bg = b >= 8 ? others.fg : -1;
            canvas_put(c, x + i, y, s, 0x2590u - (uint32_t)a);
        } else if (a >= 8) {
            canvas_put(c, x + i, y, mine, 0x2588);
        } else if (b >= 8) {
            canvas_put(c, x + i, y, others, t->depth == THEME_MONO ? 0x2592 : 0x2588);
        } else if (b > 0) {
            canvas_put(c, x + i, y, others, 0x2590u - (uint32_t)b);
        } else {
            canvas_put(c, x + i, y, ground, 0xb7);
        }
    }
}

static void cores(struct canvas *c, struct rect r, const struct ui_model *m)
{
    const struct ui_system *s = &m->system;
    int per_row = r.w, i;
    int wide = s->n_cores * 2 <= per_row ? 2 : 1,
        widest = s->n_cores > 0 ? (per_row + 1) / s->n_cores : 1;

    /* few cores: space for more than eight steps */
    if (widest >= LYING) {
        for (i = 0; i < s->n_cores; i++) {
            double all = isnan(s->core_use[i]) ? 0 : s->core_use[i],
                   own = isnan(s->core_process_use[i]) ? 0 : s->core_process_use[i];

            core_meter(c, r.x + i * widest, r.y, widest - 1, own, own > all ? own : all, &m->theme);
        }
        return;
    }
    if (widest > wide)
        wide = widest > 4 ? 4 : widest;
    if (per_row < wide)
        return;
    for (i = 0; i < s->n_cores && i < UI_CORES; i++) {
        int x = r.x + i * wide % (per_row / wide * wide),
            y = r.y + i * wide / (per_row / wide * wide), k;
        double all = isnan(s->core_use[i]) ? 0 : s->core_use[i],
               own = isnan(s->core_process_use[i]) ? 0 : s->core_process_use[i];
        enum theme_role role = own * 2 >= all ? ROLE_STYLE_CPU : ROLE_STYLE_DIM;

        if (own > all)
            all = own;
        if (y >= r.y + r.h)
            break;
        for (k = 0; k < (wide > 1 ? wide - 1 : 1); k++)
            canvas_put(c, x + k, y, theme_style(&m->theme, role),
                       all < 0.0625 ? 0x2581 : draw_level(all));
    }
}

static void holds(char *out, size_t size, const struct device_stats *d, int width)
{
    char a[16];

    snprintf(out, size, "holds %s",
             draw_size(a, (double)(d->weight_bytes + d->kv_bytes), width < 30));
}

/* Draws only if it fits before end; returns the column after it. */
__attribute__((format(printf, 6, 0))) static int part(struct canvas *c, int x, int y, int end,
                                                      struct style s, const char *format, double v)
{
    char text[64];

    snprintf(text, sizeof text, format, v);
    return x + glyph_text_width(text, strlen(text)) > end ? x : canvas_text(c, x, y, s, text) + 1;
}

/* Which threads decode, where cores are of several kinds. */
static void kinds(char *out, size_t size, const struct device_stats *d, int width)
{
    int fast = (int)d->fast_threads, slow = (int)d->slow_threads;

    if (!slow)
        snprintf(out, size, "decode: %d fast core%s", fast, fast == 1 ? "" : "s");
    else
        snprintf(out, size,
                 width < 36 ? "%d fast, %d at %d %%" : "decode: %d fast cores, %d at %d %%", fast,
                 slow, (int)(d->slow_share + 5) / 10);
}

static int cpu_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    const struct ui_system *s = &m->system;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    int rows = core_rows(m, r.w), most_rows = r.h > 1 ? r.h - 1 : 1, x, end;
    char text[64];

    rows = rows > 3 ? 3 : rows;
    rows = rows > most_rows ? most_rows : rows;
    canvas_text(c, r.x, r.y, theme_style(&m->theme, ROLE_STYLE_CPU), "cpu");
    if (!s->valid) {
        canvas_text(c, r.x + 5, r.y, dim, "–");
        return 1;
    }
    cores(c, (struct rect){r.x + 5, r.y, r.w - 5, rows}, m);
    if (rows < r.h) {
        snprintf(text, sizeof text, "%3.0f %%",
                 isnan(s->process_cores) || !s->n_cores
                     ? 0
                     : s->process_cores / (float)s->n_cores * 100);
        x = canvas_text(c, r.x + 5, r.y + rows, theme_style(&m->theme, ROLE_STYLE_FIGURE), text) +
            1;
        end = r.x + r.w;
        if (r.w >= 40 && !m->training) {
            holds(text, sizeof text, &m->live.devices[0], r.w);
            end = canvas_text_right(c, end, r.y + rows, dim, text) - 2;
        }
        if (r.w >= 32 && !isnan(s->system_use))
            x = part(c, x, r.y + rows, end, dim, "all %.0f %%", s->system_use * 100);
        if (!isnan(s->mhz))
            x = part(c, x, r.y + rows, end, dim, " %.1f GHz", s->mhz * 1e-3);
        if (!isnan(s->temperature) && r.w >= 40)
            x = part(c, x, r.y + rows, end, dim, " %.0f °C", s->temperature);
        if (!isnan(s->watts) && r.w >= 32)
            x = part(c, x, r.y + rows, end, dim, " %.1f W", s->watts);
        if (!isnan(s->battery_watts) && r.w >= 40)
            part(c, x, r.y + rows, end, dim, " battery %.1f W", s->battery_watts);
        rows++;
    }
    if (rows < r.h && m->live.devices[0].fast_threads) {
        kinds(text, sizeof text, &m->live.devices[0], r.w);
        canvas_text_fit(c, r.x + 5, r.y + rows++, r.w - 5, dim, text);
    }
    return rows;
}

/* What is the matter with a device, or how much of its work was audited; returns whether it is
 * trouble. */
static bool health(char *out, size_t size, const struct device_stats *t,
                   const struct device_health *h)
{
    static const char *const words[] = {[TROUBLE_NONE] = "",
                                        [TROUBLE_SLOW] = "slow: ",
                                        [TROUBLE_MEMORY] = "out of memory: ",
                                        [TROUBLE_LOST] = "LOST: ",
                                        [TROUBLE_WRONG] = "WRONG: "};

    if (h->returned && (h->trouble == TROUBLE_SLOW || h->trouble == TROUBLE_MEMORY))
        snprintf(out, size, "%s%d block%s back on the CPU", words[h->trouble], h->returned,
                 h->returned == 1 ? "" : "s");
    else if (h->trouble != TROUBLE_NONE)
        snprintf(out, size, "%s%s", words[h->trouble], h->why);
    else if (t->failures)
        snprintf(out, size, "%d failed", (int)t->failures);
    else if (h->audited)
        snprintf(out, size, "%llu audited", (unsigned long long)h->audited);
    else
        out[0] = 0;
    return h->trouble != TROUBLE_NONE;
}

static int other_draw(struct canvas *c, struct rect r, const struct ui_model *m, int i)
{
    const struct ui_device *d = &m->devices[i];
    const struct device_stats *t = &m->live.devices[i];
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM), s = theme_device(&m->theme, i);
    char text[DEVICE_WHY + 300], state[DEVICE_WHY + 20];
    bool trouble;
    int x;

    canvas_text(c, r.x, r.y, s, ui_device_word(m, i));
    if (isnan(d->use)) {
        x = canvas_text(c, r.x + 5, r.y, theme_style(&m->theme, ROLE_STYLE_TEXT),
                        d->why[0] ? "N/A" : "–");
        snprintf(text, sizeof text, "%s", d->why);
        canvas_text_fit(c, x + 1, r.y, r.x + r.w - x - 1, dim, text);
    } else {
        int width = r.w - 5 - 7;

        draw_bar(c, r.x + 5, r.y, width, d->use, s, theme_style(&m->theme, ROLE_STYLE_RULE));
        snprintf(text, sizeof text, "%3.0f %%", d->use * 100);
        canvas_text_right(c, r.x + r.w, r.y, theme_style(&m->theme, ROLE_STYLE_FIGURE), text);
    }
    if (r.h < 2)
        return 1;
    holds(text, sizeof text, t, r.w);
    if (!isnan(d->mhz)) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof text - n, "  %.1f GHz", d->mhz * 1e-3);
    }
    if (!isnan(d->temperature)) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof text - n, "  %.0f °C", d->temperature);
    }
    if (i == 1 && !isnan(d->watts)) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof text - n, "  %.1f W", d->watts);
    }
    trouble = health(state, sizeof state, t, &m->live.health[i]);
    if (state[0] && !trouble) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof text - n, "  %s", state);
    }
    if (r.w >= 36 && d->name[0]) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof text - n, "  %s", d->name);
    }
    canvas_text_fit(c, r.x + 5, r.y + 1, r.w - 5,
                    trouble || t->failures ? theme_style(&m->theme, ROLE_STYLE_TROUBLE) : dim,
                    trouble ? state : text);
    return 2;
}

/* Each device's history, on the remaining rows. */
static void past_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    int n = 0, rows, y = r.y;

    for (int i = 0; i < DEVICE_MAX; i++)
        n += m->use[i].count > 0;
    rows = n ? r.h / n : 0;
    for (int i = 0; i < DEVICE_MAX && rows >= LEAST_PAST; i++) {
        if (!m->use[i].count)
            continue;
        canvas_text(c, canvas_text(c, r.x, y, dim, ui_device_word(m, i)), y, dim, ", up to 100 %");
        draw_graph(c, (struct rect){r.x, y + 1, r.w, rows - 2}, &m->use[i], 1,
                   theme_device(&m->theme, i));
        y += rows;
    }
}

static void devices_draw(struct canvas *c, struct rect r, struct ui_model *m,
                         const struct panel_view *v)
{
    int y = cpu_draw(c, r, m), i;

    for (i = 1; i < m->live.n_devices && i < DEVICE_MAX && y < r.h; i++)
        y += other_draw(c, (struct rect){r.x, r.y + y, r.w, r.h - y}, m, i);
    if (v->zoomed)
        past_draw(c, (struct rect){r.x, r.y + y + 1, r.w, r.h - y - 1}, m);
}

const struct panel panel_devices = {
    .name = "devices",
    .open = true,
    .training = true,
    .column = 0,
    .priority = 5,
    .min = 2,
    .grow = 0,
    .want = devices_want,
    .most = devices_most,
    .draw = devices_draw,
    .side = devices_side,
    .explain = explain,
};
