/* Panel Memory: the model's by kind, the resident memory of the process, and the machine's memory
 * in use. Above 90 % in use the machine's row turns red and a warning is added. */
#include "ui/draw.h"
#include "ui/panels/panel.h"

#include <stdio.h>

#define KINDS                                                                                   \
    "scratch: working space of the computation",                                                \
        "experts: memory for those of a model that stays on the disk (--expert-cache); there: " \
        "how "                                                                                  \
        "often one was there when it was asked for",                                            \
        "disk: how fast it was read, and the share of the time that computing waited for it",   \
        "process: resident memory of this program (RSS), as top shows it",                      \
        "system: memory in use of all there is; free: what could be had without swapping"
#define WEIGHTS                                                                                  \
    "weights: packed in memory of ours, and mapped from the model file (given back when memory " \
    "is "                                                                                        \
    "short)"

static const char *const explain[] = {
    WEIGHTS,
    "kv used: keys and values of the conversation so far, of what a full context takes",
    KINDS,
    NULL,
};
static const char *const explain_server[] = {
    WEIGHTS,
    "kv used: keys and values of all sessions (what they have in common counts once), of what "
    "those "
    "used so far may take",
    KINDS,
    NULL,
};

static const char *const explain_training[] = {
    "base: the frozen weights, as they lie in memory",
    "adapter: what is trained, its gradients, both moments of AdamW, and the last sound values",
    "batch: each layer's inputs, one layer's inside, logits in pieces, and the threads' scratch",
    "process: resident memory of this program (RSS), as top shows it",
    "system: memory in use of all there is; free: what could be had without swapping",
    NULL,
};

/* Copies of the weights on devices; the rest of the devices' memory is counted with the host's. */
static double copies(const struct ui_model *m)
{
    double sum = 0;

    for (int i = 1; i < m->live.n_devices && i < DEVICE_MAX; i++)
        sum += (double)(m->live.devices[i].weight_bytes - m->live.devices[i].shared_bytes);
    return sum;
}

static double used_share(const struct ui_model *m)
{
    const struct ui_system *s = &m->system;

    return s->valid && s->memory_total && s->memory_total != UINT64_MAX
               ? 1.0 - (double)s->memory_available / (double)s->memory_total
               : 0;
}

/* Disk activity is always shown. */
static int memory_least(const struct ui_model *m)
{
    return m->live.disk.slots > 0 ? 4 : 2;
}

static int memory_want(const struct ui_model *m, int width)
{
    return (ui_server_hides(&m->server) ? 2 : 5) + 2 * (m->live.disk.slots > 0) +
           (used_share(m) > 0.9);
}

static int memory_most(const struct ui_model *m, int width)
{
    return (ui_server_hides(&m->server) ? 2 : 7) + 2 * (m->live.disk.slots > 0);
}

static void memory_side(const struct ui_model *m, const struct panel_view *v, char *out,
                        size_t size)
{
    char a[16], b[16];

    if (m->system.valid)
        snprintf(out, size, "%s of %s",
                 draw_size(a, (double)(m->system.memory_total - m->system.memory_available), false),
                 draw_size(b, (double)m->system.memory_total, false));
}

static void row(struct canvas *c, struct rect r, int y, const struct ui_model *m, const char *label,
                double bytes, double of, enum theme_role role, const char *more)
{
    char a[16];
    int x, width;

    if (y >= r.h)
        return;
    x = panel_figure(c, r.x, r.y + y, m, label, 8, draw_size(a, bytes, r.w < 30), "");
    (void)x;
    x = r.x + (r.w < 30 ? 15 : 18);
    width = r.x + r.w - x;
    /* align the ends of bars of one scale */
    if (width > 24) {
        canvas_text_right(c, r.x + r.w, r.y + y, theme_style(&m->theme, ROLE_STYLE_DIM), more);
        width -= 16;
    }
    draw_bar(c, x, r.y + y, width, of > 0 ? bytes / of : 0, theme_style(&m->theme, role),
             theme_style(&m->theme, ROLE_STYLE_RULE));
}

/* A label, its figure, and a note at the end of the row. */
static void figure_row(struct canvas *c, struct rect r, int y, const struct ui_model *m,
                       const char *label, const char *figure, const char *more)
{
    panel_figure(c, r.x, r.y + y, m, label, 8, figure, "");
    canvas_text_right(c, r.x + r.w, r.y + y, theme_style(&m->theme, ROLE_STYLE_DIM), more);
}

/* The cache of experts that stay on disk, and the disk reads. */
static int disk_rows(struct canvas *c, struct rect r, int y, const struct ui_model *m, double total)
{
    const struct telemetry *t = &m->live;
    bool narrow = r.w < 34;
    char text[64] = "", a[16], rate[32];

    if (t->disk.hits + t->disk.misses)
        snprintf(text, sizeof text, "%.0f %% there", 100 * t->disk_hits);
    if (narrow)
        figure_row(c, r, y++, m, "experts", draw_size(a, (double)t->disk.bytes, true), text);
    else
        row(c, r, y++, m, "experts", (double)t->disk.bytes, total, ROLE_STYLE_GRAPH, text);
    if (y >= r.h)
        return y;
    snprintf(rate, sizeof rate, "%s/s", draw_size(a, t->disk_rate, narrow));
    snprintf(text, sizeof text, narrow ? "%.0f%% wait" : "%.0f %% waited", 100 * t->disk_share);
    figure_row(c, r, y, m, "disk", rate, text);
    return y + 1;
}

/* The process and the machine, shown on every screen. */
static void machine_rows(struct canvas *c, struct rect r, int y, const struct ui_model *m)
{
    const struct ui_system *s = &m->system;
    double total = (double)s->memory_total, share = used_share(m);
    char text[64] = "", a[16];

    if (!s->valid)
        return;
    if (s->rss_peak != UINT64_MAX && s->rss_peak)
        snprintf(text, sizeof text, "peak %s", draw_size(a, (double)s->rss_peak, false));
    row(c, r, y++, m, "process", (double)s->rss, total, ROLE_STYLE_CPU, text);
    snprintf(text, sizeof text, "free %s", draw_size(a, (double)s->memory_available, false));
    row(c, r, y++, m, "system", total * share, total,
        share > 0.9 ? ROLE_STYLE_TROUBLE : ROLE_STYLE_GRAPH, text);
    if (share > 0.9 && y < r.h) {
        snprintf(text, sizeof text, "%.0f %% in use: swapping is near", share * 100);
        canvas_text_fit(c, r.x, r.y + y, r.w, theme_style(&m->theme, ROLE_STYLE_TROUBLE), text);
    }
}

static void training_draw(struct canvas *c, struct rect r, const struct ui_model *m, double total)
{
    const struct ui_training *t = m->training;
    int y = 0;

    if (r.h >= 5) {
        row(c, r, y++, m, "base", (double)t->base, total, ROLE_STYLE_GRAPH, "");
        row(c, r, y++, m, "adapter", (double)t->adapter, total, ROLE_STYLE_GRAPH, "");
        row(c, r, y++, m, "batch", (double)t->memory, total, ROLE_STYLE_GRAPH, "");
    }
    machine_rows(c, r, y, m);
}

static void memory_draw(struct canvas *c, struct rect r, struct ui_model *m,
                        const struct panel_view *v)
{
    const struct telemetry *t = &m->live;
    const struct ui_system *s = &m->system;
    double total = s->valid ? (double)s->memory_total : 0,
           weights = (double)(t->weights_packed + t->weights_mapped + t->adapter_bytes +
                              t->control_bytes) +
                     copies(m);
    char text[64] = "", a[16];
    int y = 0;

    if (m->training) {
        training_draw(c, r, m, total);
        return;
    }
    if (ui_server_hides(&m->server)) {
        machine_rows(c, r, y, m); /* the model is elsewhere */
        return;
    }
    if (r.h >= (t->disk.slots ? 7 : 5)) {
        if (t->weights_mapped)
            snprintf(text, sizeof text, "%s mapped",
                     draw_size(a, (double)t->weights_mapped, false));
        row(c, r, y++, m, "weights", weights, total, ROLE_STYLE_GRAPH, text);
        snprintf(text, sizeof text, "of %s", draw_size(a, (double)t->kv_bytes, false));
        row(c, r, y++, m, "kv used", (double)t->kv_used_bytes, total, ROLE_STYLE_GRAPH, text);
        row(c, r, y++, m, "scratch", (double)t->scratch_bytes, total, ROLE_STYLE_GRAPH, "");
        if (t->disk.slots)
            y = disk_rows(c, r, y, m, total);
    } else if (t->disk.slots && r.h >= 4) {
        y = disk_rows(c, r, y, m, total);
    } else if (r.h >= 3) {
        row(c, r, y++, m, "weights", weights, total, ROLE_STYLE_GRAPH, "");
    }
    machine_rows(c, r, y, m);
}

const struct panel panel_memory = {
    .name = "memory",
    .open = true,
    .training = true,
    .column = 0,
    .priority = 4,
    .min = 2,
    .least = memory_least,
    .grow = 0,
    .want = memory_want,
    .most = memory_most,
    .draw = memory_draw,
    .side = memory_side,
    .explain = explain,
    .explain_server = explain_server,
    .explain_training = explain_training,
};
