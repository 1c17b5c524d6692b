/* Experts: the map, layers down and experts across. Heat is an expert's share of its layer's
 * choices relative to the even share 1/n, on a log scale with "even" in the middle of the ramp, so
 * over- and under-use both show; never chosen is black. Half blocks show two layers per line if
 * lines are short; without colours a glyph's density is the heat, and digits mark the GPU. */
#include "ui/draw.h"
#include "ui/panels/heat_map.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CELLS                                                                                      \
    "a cell: how often an expert was chosen, against the even share of its layer (middle of the "  \
    "ramp); each step is a factor 1.7",                                                            \
        "blue: runs on the CPU; orange: on the GPU. Without colours: . : - = + * # @ on the CPU, " \
        "digits on the GPU",                                                                       \
        "grey, or letters without colours: it lies on the disk alone (--expert-cache)",            \
        "bright: chosen by the newest token, or just arrived on another device",                   \
        "a small square (s without colours): a shared expert or a dense layer, which every token " \
        "meets; an empty row: a layer without experts, a mixer alone",                             \
        "x: the expert is edited (/expert, --expert-edit)"
#define MOVES                                                                                \
    "m changes the mode, arrows move the cursor, z shows counts, entropy (1: even) and the " \
    "hottest"

static const char *const explain[] = {
    CELLS,
    "a bright number: the layer that is computed, where a token or a piece of the prompt takes "
    "long; the map follows it until its cursor is moved",
    "with --beside, 1 against 2: how much more often one answer chose an expert than the other; "
    "blue: the chat's, orange: the second one's",
    "answer: this answer's tokens; session: all, your messages included; now: the newest tokens "
    "weigh most (half as much 16 tokens back)",
    MOVES,
    NULL,
};
static const char *const explain_server[] = {
    CELLS,
    "since the start: all tokens, of prompts and answers, of all sessions; now: the newest tokens "
    "of all sessions weigh most (half as much 16 tokens back)",
    MOVES,
    NULL,
};

static const char gpu_glyphs[THEME_RAMP + 1] = " 12345678";
static const char disk_glyphs[THEME_RAMP + 1] = " abcdefgh";

struct state {
    int expert;       /* the cursor's; its layer is the model's */
    bool moved;       /* the user moved the cursor */
    int top;          /* first layer shown */
    int first, shown; /* layers of the last drawing */
};

struct map {                     /* how the map lies in its rectangle */
    int x, cell_w, bin, columns; /* first cell's column, cells per bin, experts per bin, bins */
    int per_line, lines, top;    /* layers per line, lines, first layer shown */
    int blocks, block_w;         /* folded deep maps: number side by side, columns between them */
    int parts;                   /* rows of cells per layer; per_line 1 */
    bool halves;                 /* a line holds two rows of cells: layers, or parts of one */
};

/* For a layer with several rows of cells. */
static int lines_a_layer(const struct map *p)
{
    return p->halves ? p->parts / 2 : p->parts;
}

static double value(const struct ui_model *m, int at)
{
    return m->heat == HEAT_ANSWER    ? m->live.answer[at]
           : m->heat == HEAT_SESSION ? m->live.session[at]
           : m->heat == HEAT_BESIDE  ? fabs((double)m->beside[at])
                                     : (double)m->live.now[at];
}

/* Whose colour a cell has: the device that runs it; in a comparison the answer (0, 1) that chose it
 * more often. */
static int cell_side(const struct ui_model *m, int layer, int expert)
{
    return m->heat != HEAT_BESIDE ? ui_cell_device(m, layer, expert)
                                  : m->beside[layer * m->live.n_experts + expert] < 0;
}

static double layer_total(const struct ui_model *m, int layer)
{
    double sum = 0;
    int e;

    if (m->heat == HEAT_BESIDE) /* the values are shares */
        return telemetry_routed(&m->live, layer) > 0;
    for (e = 0; e < telemetry_routed(&m->live, layer); e++)
        sum += value(m, layer * m->live.n_experts + e);
    return sum;
}

/* Whether these include an always-used expert and none that is routed. */
static bool always_met(const struct ui_model *m, int layer, int first, int end)
{
    return first >= telemetry_routed(&m->live, layer) &&
           first < telemetry_blocks(&m->live, layer) && end > first;
}

/* Step of the ramp, 0: never chosen. */
static int level(double v, double total, int n)
{
    return v <= 1e-3 || total <= 0 ? 0 : heat_map_step(log2(v / total * n));
}

/* Rows of the whole map at its densest, including axis and foot. */
static int least_rows(const struct ui_model *m, int width)
{
    return heat_map_rows(&m->theme, m->live.n_layers ? m->live.n_layers : 8, m->live.n_experts,
                         width);
}

/* More experts than columns, and enough lines: splits a layer into several rows of cells. */
static void parts_make(struct map *p, int experts, int layers, int rows, int room, bool halved)
{
    int lines = rows / layers, most = lines * (halved ? 2 : 1);

    if (p->per_line > 1 || p->blocks > 1 || lines < 1 || experts <= room)
        return;
    while (p->parts < most && (experts + p->parts - 1) / p->parts > room)
        p->parts += halved ? 2 - p->parts % 2 : 1;
    p->halves = halved && p->parts > 1;
}

/* layer: always visible, the cursor's or the one being computed. */
static struct map map_make(const struct ui_model *m, int top, int layer, struct rect r, int foot)
{
    struct map p = {.bin = 1, .per_line = 1, .blocks = 1, .parts = 1};
    int n = m->live.n_experts, layers = m->live.n_layers, rows = r.h - 1 - foot, room;

    if (rows < layers && !heat_map_glyphs(&m->theme))
        p.per_line = 2;
    if (rows * p.per_line < layers && heat_map_folds(layers, n, p.per_line, r.w)) {
        p.blocks = 2;
        p.block_w = (r.w + 1) / 2;
        r.w = p.block_w - 1;
    }
    p.x = r.x + heat_map_label_width(layers, p.per_line);
    room = r.x + r.w - p.x;
    if (room < 1 || n < 1)
        return p;
    parts_make(&p, n, layers, rows, room, !heat_map_glyphs(&m->theme));
    while ((n + p.bin - 1) / p.bin > room * p.parts)
        p.bin++;
    p.columns = ((n + p.bin - 1) / p.bin + p.parts - 1) / p.parts;
    p.cell_w = room / p.columns;
    p.cell_w = p.cell_w > 3 ? 3 : p.cell_w;
    if (p.parts > 1) { /* all layers fit */
        p.lines = layers * lines_a_layer(&p);
        return p;
    }
    p.halves = p.per_line == 2;
    p.lines = heat_map_lines(layers, p.per_line * p.blocks, rows);
    p.top = heat_map_top(top, layer, layers, p.per_line, p.lines * p.blocks);
    return p;
}

struct heat {
    int step, light, device;
    bool always; /* used by every token */
    bool away;   /* only on disk: all of the bin */
    bool edited; /* /expert: some of the bin */
};

static struct heat bin_heat(const struct ui_model *m, int layer, int column, const struct map *p,
                            double total)
{
    struct heat h = {0};
    double sum = 0;
    int e, n = 0;

    if (layer >= m->live.n_layers)
        return h;
    h.always = always_met(m, layer, column * p->bin, (column + 1) * p->bin);
    h.away = true;
    for (e = column * p->bin;
         e < (column + 1) * p->bin &&
         e < (h.always ? telemetry_blocks(&m->live, layer) : telemetry_routed(&m->live, layer));
         e++, n++) {
        int at = layer * m->live.n_experts + e;

        sum += value(m, at);
        h.device = cell_side(m, layer, e) > h.device ? cell_side(m, layer, e) : h.device;
        h.away = h.away && !m->live.here[at] && m->heat != HEAT_BESIDE;
        h.edited |= m->live.edited[at] != 0;
        h.light = m->light[at] > h.light ? m->light[at] : h.light;
    }
    h.step = h.always ? THEME_RAMP / 2
             : n      ? level(sum / n, total, telemetry_routed(&m->live, layer))
                      : 0;
    return h;
}

/* Layers that are only a mixer have no cells. */
static bool has_cells(const struct ui_model *m, int layer)
{
    return layer < m->live.n_layers && telemetry_blocks(&m->live, layer) > 0;
}

/* Of the palette's colours, 0 .. 255. */
static int brightness(int16_t colour)
{
    static const uint8_t levels[6] = {0, 95, 135, 175, 215, 255};

    return colour >= 232  ? 8 + (colour - 232) * 10
           : colour >= 16 ? (levels[(colour - 16) / 36] * 3 + levels[(colour - 16) / 6 % 6] * 6 +
                             levels[(colour - 16) % 6]) /
                                10
                          : 0;
}

/* The grey of the same brightness: heat without a device's colour. */
static int16_t grey_of(int16_t colour, enum theme_depth depth)
{
    int grey = (brightness(colour) - 8 + 5) / 10;

    if (depth == THEME_16)
        return colour > 0 ? 8 : colour;
    return colour < 16 ? colour : (int16_t)(232 + (grey < 0 ? 0 : grey > 23 ? 23 : grey));
}

static int16_t heat_colour(const struct theme *t, struct heat h)
{
    int step = h.step;

    if (h.light > UI_LIGHT - THEME_FADE)
        return t->fade[t->depth][UI_LIGHT - h.light];
    step = step + h.light < THEME_RAMP ? step + h.light : THEME_RAMP - 1;
    if (h.away)
        return grey_of(theme_ramp(t, 0)[step], t->depth);
    return theme_ramp(t, h.device)[step];
}

/* A row of cells: a layer, or a part of its experts. layer n_layers: none. */
struct row {
    int layer, part;
    double total; /* of the layer */
};

static struct row row_make(const struct ui_model *m, int layer, int part)
{
    bool there = layer < m->live.n_layers;

    return (struct row){there ? layer : m->live.n_layers, part, there ? layer_total(m, layer) : 0};
}

/* The row in the lower halves of a line that starts with this row; none if not halved. */
static struct row row_below(const struct ui_model *m, const struct map *p, const struct row *r)
{
    return !p->halves     ? row_make(m, m->live.n_layers, 0)
           : p->parts > 1 ? row_make(m, r->layer, r->part + 1)
                          : row_make(m, r->layer + 1, 0);
}

static struct heat cell_heat(const struct ui_model *m, const struct map *p, const struct row *r,
                             int column)
{
    return bin_heat(m, r->layer, r->part * p->columns + column, p, r->total);
}

static void label_draw(struct canvas *c, int x, int y, const struct ui_model *m,
                       const struct map *p, const struct row *r)
{
    int at = m->live.layer_at - 1;
    bool computed = at >= r->layer && at < r->layer + p->per_line;
    char label[32];

    if (r->part)
        return;
    heat_map_label(label, r->layer, m->live.n_layers, p->per_line);
    canvas_text(c, x, y, theme_style(&m->theme, computed ? ROLE_STYLE_NEW : ROLE_STYLE_DIM), label);
}

/* A cell as a glyph whose density is its heat. */
static void glyph_draw(struct canvas *c, int x, int y, const struct theme *t, struct heat a)
{
    struct style s = t->depth == THEME_MONO ? STYLE_PLAIN
                                            : (struct style){heat_colour(t, a), -1, 0};

    s.attrs = a.light > 1 ? STYLE_REVERSE : a.light ? STYLE_BOLD : 0;
    canvas_put(c, x, y, s,
               a.edited   ? 'x'
               : a.always ? 's'
                          : (unsigned char)(a.away     ? disk_glyphs
                                            : a.device ? gpu_glyphs
                                                       : heat_map_ramp)[a.step]);
}

/* An edited cell: a cross on its heat. */
static void mark_draw(struct canvas *c, int x, int y, const struct theme *t, int16_t heat)
{
    struct style s = theme_style(t, ROLE_STYLE_NEW);

    s.bg = heat;
    canvas_put(c, x, y, s, 'x');
}

/* above: the upper one is there. */
static uint32_t shape_of_block(const struct map *p, bool above, bool always, int column)
{
    return !above ? 0x2584 : p->halves ? 0x2580 : !always ? 0x2588 : column ? ' ' : 0x25aa;
}

/* A coloured cell, and the one below it in the same line. */
static void block_draw(struct canvas *c, int x, int y, const struct ui_model *m,
                       const struct map *p, const struct row *upper, const struct row *lower,
                       int column)
{
    const struct theme *t = &m->theme;
    bool above = has_cells(m, upper->layer), below = has_cells(m, lower->layer);
    struct heat a = cell_heat(m, p, upper, column);
    struct style s = {heat_colour(t, a), -1, 0};

    if (!above)
        s.fg = heat_colour(t, cell_heat(m, p, lower, column));
    else if (below)
        s.bg = heat_colour(t, cell_heat(m, p, lower, column));
    if (above && a.edited)
        mark_draw(c, x, y, t, heat_colour(t, a));
    else if (below && cell_heat(m, p, lower, column).edited)
        mark_draw(c, x, y, t, heat_colour(t, cell_heat(m, p, lower, column)));
    else
        canvas_put(c, x, y, s, shape_of_block(p, above, a.always, 0));
    if (p->cell_w > 1)
        canvas_put(c, x + 1, y, s, shape_of_block(p, above, a.always, 1));
}

static void line_draw(struct canvas *c, int x_label, const struct ui_model *m, const struct map *p,
                      int y, int layer, int part)
{
    struct row upper = row_make(m, layer, part), lower = row_below(m, p, &upper);

    if (layer >= m->live.n_layers)
        return;
    label_draw(c, x_label, y, m, p, &upper);
    if (!has_cells(m, upper.layer) && !has_cells(m, lower.layer))
        return;
    for (int i = 0; i < p->columns; i++) {
        int x = p->x + i * p->cell_w;

        if (heat_map_glyphs(&m->theme))
            glyph_draw(c, x, y, &m->theme, cell_heat(m, p, &upper, i));
        else
            block_draw(c, x, y, m, p, &upper, &lower, i);
    }
}

/* Draws the cursor on the line that starts with this row, if it is there. */
static void cursor_draw(struct canvas *c, const struct ui_model *m, const struct map *p, int y,
                        int layer, int part, int expert)
{
    int bin = expert / p->bin, below = bin / p->columns - part;

    if (p->parts == 1)
        below = m->cursor_layer - layer;
    else if (m->cursor_layer != layer)
        return;
    if (layer >= m->live.n_layers || below < 0 || below > p->halves)
        return;
    heat_map_cursor(c, p->x + bin % p->columns * p->cell_w, y, p->cell_w, &m->theme, below);
}

/* The default position of the cursor: the expert with the largest share. */
static void hottest(const struct ui_model *m, int *layer, int *expert)
{
    double best = -1;
    int l, e;

    *layer = *expert = 0;
    for (l = 0; l < m->live.n_layers; l++) {
        double total = layer_total(m, l);

        for (e = 0; e < telemetry_routed(&m->live, l); e++) {
            double v = total > 0 ? value(m, l * m->live.n_experts + e) / total : 0;

            if (v > best) {
                best = v;
                *layer = l;
                *expert = e;
            }
        }
    }
}

/* Legend of the colours (or glyphs): the ramp of each device that has experts. */
static void legend_draw(struct canvas *c, struct rect r, const struct ui_model *m, int y)
{
    const struct theme *t = &m->theme;
    struct style dim = theme_style(t, ROLE_STYLE_DIM);
    bool tight = r.w < 24; /* no blanks between the words and the ramp */
    int x = canvas_text(c, r.x, y, dim, tight ? "rare" : "rare ");

    for (int d = 0; d < m->live.n_devices && d < THEME_RAMPS; d++) {
        x = heat_map_legend(c, x, y, t, theme_ramp(t, d), d ? gpu_glyphs : heat_map_ramp);
        x = canvas_text(c, x, y, dim, d ? " " : tight ? "often " : " often ");
        x = canvas_text(c, x, y, theme_device(t, d), ui_device_word(m, d)) + 2;
    }
}

static void foot_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                      const struct panel_view *v, int y)
{
    const struct state *s = v->state;
    int layer = m->cursor_layer, expert = s->expert, on;
    double total, chosen;
    char line[128], a[24], b[24];

    if (!s->moved && !v->focused)
        hottest(m, &layer, &expert);
    if (layer >= m->live.n_layers || expert >= m->live.n_experts)
        return;
    if (expert >= telemetry_routed(&m->live, layer)) {
        if (!has_cells(m, layer))
            snprintf(line, sizeof line, "L%d: a mixer, no experts", layer);
        else if (!always_met(m, layer, expert, expert + 1))
            snprintf(line, sizeof line, "L%d has no expert %d", layer, expert);
        else if (telemetry_routed(&m->live, layer))
            snprintf(line, sizeof line, "L%d E%d is the shared expert: every token meets it", layer,
                     expert);
        else
            snprintf(line, sizeof line, "L%d is dense: every token meets all of it", layer);
        canvas_text_fit(c, r.x, y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM), line);
        return;
    }
    total = layer_total(m, layer);
    chosen = value(m, layer * m->live.n_experts + expert);
    on = ui_cell_device(m, layer, expert);
    if (total <= 0) {
        legend_draw(c, r, m, y);
        return;
    }
    if (m->heat == HEAT_BESIDE)
        snprintf(line, sizeof line, "L%d E%d: %.1f %% more of %s's choices", layer, expert,
                 chosen * 100, cell_side(m, layer, expert) ? "2" : "1");
    else if (m->heat == HEAT_NOW)
        snprintf(line, sizeof line, "L%d E%d %.1f %% now", layer, expert,
                 total > 0 ? chosen / total * 100 : 0);
    else if (r.w >= 40)
        snprintf(line, sizeof line, "L%d E%d %s  %s of %s = %.1f %% (even %.1f)", layer, expert,
                 on                                                 ? ui_device_word(m, on)
                 : m->live.here[layer * m->live.n_experts + expert] ? "cpu"
                                                                    : "disk",
                 draw_count(a, (uint64_t)chosen), draw_count(b, (uint64_t)total),
                 chosen / total * 100, 100.0 / telemetry_routed(&m->live, layer));
    else
        snprintf(line, sizeof line, "L%d E%d %s/%s %.1f %%", layer, expert,
                 draw_count(a, (uint64_t)chosen), draw_count(b, (uint64_t)total),
                 chosen / total * 100);
    if (m->heat != HEAT_NOW && m->heat != HEAT_BESIDE && (int)strlen(line) > r.w)
        snprintf(line, sizeof line, "L%d E%d %.1f %%", layer, expert, chosen / total * 100);
    canvas_text_fit(c, r.x, y, r.w,
                    theme_style(&m->theme, v->focused ? ROLE_STYLE_TEXT : ROLE_STYLE_DIM), line);
}

static double entropy(const struct ui_model *m, int layer)
{
    double total = layer_total(m, layer), sum = 0;
    int e, n = telemetry_routed(&m->live, layer);

    if (total <= 0 || n < 2)
        return 0;
    for (e = 0; e < n; e++) {
        double p = value(m, layer * m->live.n_experts + e) / total;

        sum -= p > 0 ? p * log2(p) : 0;
    }
    return sum / log2(n);
}

/* The most chosen, or the least: their shares below zero. */
static int rank(const struct ui_model *m, struct heat_map_cell *out, int most, bool cold)
{
    int n = 0;

    for (int l = 0; l < m->live.n_layers; l++) {
        double total = layer_total(m, l);

        for (int e = 0; total > 0 && e < telemetry_routed(&m->live, l); e++) {
            double share = value(m, l * m->live.n_experts + e) / total;

            n = heat_map_rank(out, n, most, (struct heat_map_cell){cold ? -share : share, l, e});
        }
    }
    return n;
}

static void rank_draw(struct canvas *c, struct rect r, const struct ui_model *m, const char *title,
                      bool cold)
{
    struct heat_map_cell list[8];
    struct rect before = canvas_clip(c, r);
    int n = rank(m, list, 8, cold);
    char a[24];

    canvas_text(c, r.x, r.y, theme_style(&m->theme, ROLE_STYLE_DIM), title);
    for (int i = 0; i < n && i + 1 < r.h; i++) {
        int l = list[i].layer, e = list[i].column;

        canvas_printf(c, r.x, r.y + 1 + i, theme_device(&m->theme, cell_side(m, l, e)),
                      "L%-3d E%-3d %7s  %5.2f %%", l, e,
                      m->heat == HEAT_NOW || m->heat == HEAT_BESIDE
                          ? ""
                          : draw_count(a, (uint64_t)value(m, l * m->live.n_experts + e)),
                      (cold ? -list[i].v : list[i].v) * 100);
    }
    canvas_clip_set(c, before);
}

/* Black or white, whichever is readable on a colour of the palette. */
static int16_t ink_on(int16_t colour, enum theme_depth depth)
{
    int light = brightness(colour);

    if (colour < 16)
        return colour < 0                                                                ? -1
               : colour == 0 || colour == 1 || colour == 4 || colour == 5 || colour == 8 ? 15
                                                                                         : 0;
    return depth == THEME_16 ? light > 110 ? 0 : 15 : light > 110 ? 16 : 231;
}

/* In at most w columns, however large: 19.2, 19, 12k, 3M. */
static void cell_number(char out[24], double v, int w, bool fraction)
{
    static const struct {
        double per;
        const char *unit;
    } forms[] = {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}};

    if (fraction && snprintf(out, 24, "%*.1f", w, v) <= w)
        return;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (snprintf(out, 24, "%*.0f%s", w - (int)strlen(forms[i].unit), v / forms[i].per,
                     forms[i].unit) <= w)
            return;
    out[0] = 0;
}

/* A cell of the zoomed map: its count on its heat colour, centred. */
static void zoom_cell(struct canvas *c, struct rect r, const struct ui_model *m, int layer,
                      int expert, double total, bool cursor)
{
    const struct theme *t = &m->theme;
    int at = layer * m->live.n_experts + expert,
        step = level(value(m, at), total, telemetry_routed(&m->live, layer)),
        on = cell_side(m, layer, expert);
    bool always = always_met(m, layer, expert, expert + 1);
    struct style s = STYLE_PLAIN;
    char number[24];

    if (expert >= telemetry_blocks(&m->live, layer)) /* the layer has fewer experts than others */
        return;
    step = always ? THEME_RAMP / 2 : step;

    if (t->depth != THEME_MONO) {
        s.bg = heat_colour(t, (struct heat){step, m->light[at], on, always,
                                            !m->live.here[at] && m->heat != HEAT_BESIDE,
                                            m->live.edited[at]});
        s.fg = step ? ink_on(s.bg, t->depth) : theme_style(t, ROLE_STYLE_DIM).fg;
        canvas_fill(c, r, s, ' ');
    } else if (on) {
        s.attrs |= STYLE_UNDERLINE;
    }
    if (m->light[at] > 1)
        s.attrs |= STYLE_BOLD;
    if (m->heat == HEAT_BESIDE)
        cell_number(number, 100 * value(m, at), r.w - 1, true);
    else
        cell_number(number, value(m, at), r.w - 1, m->heat == HEAT_NOW);
    if (always)
        snprintf(number, sizeof number, "all");
    if (cursor)
        s.attrs |= STYLE_REVERSE | STYLE_BOLD;
    if (cursor)
        canvas_fill(c, (struct rect){r.x, r.y + (r.h - 1) / 2, r.w, 1}, s, ' ');
    canvas_text(c, r.x, r.y + (r.h - 1) / 2, s, number);
    if (m->live.edited[at])
        canvas_put(c, r.x + r.w - 1, r.y + (r.h - 1) / 2, s, 'x');
}

static void layers_shown(struct state *s, const struct ui_model *m, int first, int n)
{
    s->first = first;
    s->shown = first + n > m->live.n_layers ? m->live.n_layers - first : n;
}

/* Layout of the zoomed map: a table of cells, the extremes beside it or below, two lines at the
 * foot. */
struct zoom {
    int cell_w, tall; /* of a cell: columns, rows */
    int side_w;       /* columns of the extremes beside the table; 0: none */
    int rows;         /* between the heading and the foot */
    int top, shown;   /* first layer, layers */
};

static struct zoom zoom_make(const struct ui_model *m, struct rect r)
{
    int n = m->live.n_experts, layers = m->live.n_layers, table;
    struct zoom z = {.side_w = r.w >= n * 5 + 38 ? 30 : 0, .rows = r.h - 3};

    z.cell_w = (r.w - z.side_w - 14) / (n ? n : 1);
    z.cell_w = z.cell_w > 7 ? 7 : z.cell_w;
    table = z.side_w ? z.rows : z.rows - 8; /* the extremes may be below */
    z.tall = table >= layers * 3 ? 3 : table >= layers * 2 ? 2 : 1;
    if (m->theme.depth == THEME_MONO)
        z.tall = 1;
    z.shown = z.rows / z.tall;
    z.top = m->cursor_layer >= z.shown ? m->cursor_layer - z.shown + 1 : 0;
    return z;
}

/* Draws a number in each cell, and the entropy of each layer. */
static void zoom_table(struct canvas *c, struct rect r, const struct ui_model *m,
                       const struct zoom *z, int cursor_expert)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM),
                 text = theme_style(&m->theme, ROLE_STYLE_TEXT);
    int n = m->live.n_experts, behind = r.x + 7 + n * z->cell_w;

    canvas_text(c, r.x, r.y, dim, "layer");
    for (int e = 0; e < n; e++)
        canvas_printf(c, r.x + 6 + e * z->cell_w, r.y, dim, "%*d", z->cell_w - 1, e);
    if (m->heat != HEAT_BESIDE)
        canvas_text(c, behind, r.y, dim, "entropy");
    for (int l = z->top; l < m->live.n_layers && l - z->top < z->shown; l++) {
        int y = r.y + 1 + (l - z->top) * z->tall, middle = y + (z->tall - 1) / 2;
        double total = layer_total(m, l);

        canvas_printf(c, r.x, middle, dim, "%4d", l);
        for (int e = 0; e < n; e++)
            zoom_cell(c, (struct rect){r.x + 6 + e * z->cell_w, y, z->cell_w, z->tall}, m, l, e,
                      total, l == m->cursor_layer && e == cursor_expert);
        if (total > 0 && m->heat != HEAT_BESIDE)
            canvas_printf(c, behind, middle, text, "%.2f", entropy(m, l));
    }
}

/* Most and least chosen experts: beside the table, or below it if that does not fit. */
static void zoom_extremes(struct canvas *c, struct rect r, const struct ui_model *m,
                          const struct zoom *z)
{
    int table = m->live.n_layers * z->tall;
    struct rect most, least;

    if (z->side_w) {
        most = (struct rect){r.x + r.w - z->side_w, r.y, z->side_w, r.h - 2};
        least = (struct rect){most.x, most.y + 10, most.w, most.h - 10};
    } else if (z->rows - table >= 6 && r.w >= 62) {
        most = (struct rect){r.x + 2, r.y + table + 2, 30, z->rows - table - 1};
        least = (struct rect){most.x + 34, most.y, most.w, most.h};
    } else {
        return;
    }
    rank_draw(c, most, m, m->heat == HEAT_BESIDE ? "differ most" : "most chosen", false);
    if (m->heat != HEAT_BESIDE)
        rank_draw(c, least, m, "least chosen", true);
}

/* Distribution of the choices over the devices. */
static void zoom_sum(struct canvas *c, struct rect r, const struct ui_model *m)
{
    int n = m->live.n_experts, layers = m->live.n_layers, gpu_cells = 0, cells = 0, here = 0;
    double gpu = 0, all = 0;
    char line[160], a[24];
    size_t written;

    if (m->heat == HEAT_BESIDE) {
        canvas_text_fit(c, r.x, r.y + r.h - 2, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        "percent of its layer's choices more in answer 1 (blue) or 2 (orange)");
        return;
    }

    for (int l = 0; l < layers; l++)
        for (int e = 0; e < telemetry_blocks(&m->live, l); e++) {
            all += value(m, l * n + e);
            gpu += ui_cell_device(m, l, e) ? value(m, l * n + e) : 0;
            gpu_cells += ui_cell_device(m, l, e) > 0;
            here += m->live.here[l * n + e];
            cells++;
        }
    written = (size_t)snprintf(line, sizeof line,
                               "%s %d of %d experts and ran %.1f %% of %s choices",
                               m->live.n_devices > 2 ? "gpus hold" : "gpu holds", gpu_cells, cells,
                               all > 0 ? gpu / all * 100 : 0,
                               m->heat == HEAT_NOW ? "the newest" : draw_count(a, (uint64_t)all));
    if (m->live.disk.slots)
        snprintf(line + written, sizeof line - written, "; %d are in memory", here);
    canvas_text_fit(c, r.x, r.y + r.h - 2, r.w, theme_style(&m->theme, ROLE_STYLE_DIM), line);
}

static void zoom_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                      const struct panel_view *v)
{
    struct zoom z = zoom_make(m, r);
    struct state *s = v->state;

    zoom_table(c, r, m, &z, s->expert);
    zoom_extremes(c, r, m, &z);
    zoom_sum(c, r, m);
    foot_draw(c, r, m, v, r.y + r.h - 1);
    layers_shown(s, m, z.top, z.shown);
}

static int experts_least(const struct ui_model *m)
{
    return ui_server_hides(&m->server) ? 1 : 4;
}

static int experts_want(const struct ui_model *m, int width)
{
    return ui_server_hides(&m->server) ? 1 : least_rows(m, width);
}

static int experts_most(const struct ui_model *m, int width)
{
    return ui_server_hides(&m->server)
               ? 1
               : (m->live.n_layers ? m->live.n_layers : 8) + 3; /* the legend is the last row */
}

/* Rows between the densest map and a line per layer are useless. */
static int experts_step(const struct ui_model *m, int width)
{
    return m->live.n_layers && least_rows(m, width) < m->live.n_layers + 2 ? least_rows(m, width)
                                                                           : 0;
}

/* A column has less than a cell per expert. */
static bool experts_across(const struct ui_model *m, int width)
{
    int layers = m->live.n_layers;

    return !m->server.on && heat_map_label_width(layers, 1) + m->live.n_experts > width;
}

/* The cursor starts at the expert of the foot line. */
static void experts_focused(struct ui_model *m, const struct panel_view *v)
{
    struct state *s = v->state;

    if (!s->moved && m->n_cells)
        hottest(m, &m->cursor_layer, &s->expert);
    m->cursor_expert = s->expert;
}

static void experts_side(const struct ui_model *m, const struct panel_view *v, char *out,
                         size_t size)
{
    const struct state *s = v->state;

    if (m->n_cells && s->shown < m->live.n_layers)
        snprintf(out, size, "L%d–%d of %d · %s", s->first, s->first + s->shown - 1,
                 m->live.n_layers, ui_heat_word(m));
    else
        snprintf(out, size, "%s", ui_heat_word(m));
}

/* Numbers of the experts above the cells. */
static void axis_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                      const struct map *p)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    /* two digits at every second one */
    bool pairs = p->cell_w >= 2;

    if (p->parts > 1) {
        char cell[24] = "";

        if (p->bin > 1)
            snprintf(cell, sizeof cell, ", %d a cell", p->bin);
        canvas_printf(c, p->x, r.y, dim, "%d rows a layer, %d experts each%s", p->parts,
                      p->columns * p->bin, cell);
        return;
    }
    if (p->bin > 1) {
        canvas_printf(c, p->x, r.y, dim, r.w >= 26 ? "%d experts a column" : "%d a cell", p->bin);
        return;
    }
    for (int e = 0; e < p->columns; e += pairs ? 1 : 5)
        if (!pairs || (m->live.n_experts <= 100 && (e < 10 || e % 2 == 0)))
            canvas_printf(c, p->x + e * p->cell_w, r.y, dim, "%d", e);
}

static double value_sum(const struct ui_model *m)
{
    double sum = 0;

    for (int l = 0; l < m->live.n_layers && sum <= 0; l++)
        sum += layer_total(m, l);
    return sum;
}

/* Unless the user moved the cursor, the map follows a long pass through the layers. */
static int layer_seen(const struct ui_model *m, const struct panel_view *v)
{
    const struct state *s = v->state;

    return m->live.layer_at && !s->moved && !v->focused ? m->live.layer_at - 1 : m->cursor_layer;
}

/* The map in its columns: one, or two side by side if folded. */
static void map_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                     const struct panel_view *v)
{
    int foot = r.h >= 4, below, each;
    struct state *s = v->state;
    struct map p = map_make(m, s->top, layer_seen(m, v), r, foot);

    s->top = p.top;
    each = p.parts > 1 ? lines_a_layer(&p) : 1;
    layers_shown(s, m, p.top, p.lines / each * p.per_line * p.blocks);
    for (int block = 0; block < p.blocks; block++) {
        struct map half = p;

        half.x += block * p.block_w;
        axis_draw(c, r, m, &half);
        for (int i = 0; i < p.lines; i++) {
            int layer = p.top + (block * p.lines + i) / each * p.per_line, y = r.y + 1 + i,
                part = i % each * p.parts / each;

            line_draw(c, r.x + block * p.block_w, m, &half, y, layer, part);
            if (v->focused)
                cursor_draw(c, m, &half, y, layer, part, s->expert);
        }
    }
    below = r.y + 1 + p.lines;
    if (foot)
        foot_draw(c, r, m, v, below < r.y + r.h ? below : r.y + r.h - 1);
    if (foot && below + 1 < r.y + r.h && value_sum(m) > 0)
        legend_draw(c, r, m, below + 1);
}

static void experts_draw(struct canvas *c, struct rect r, struct ui_model *m,
                         const struct panel_view *v)
{
    m->cursor_expert = ((const struct state *)v->state)->expert;
    if (ui_server_hides(&m->server)) {
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        "N/A (a server tells none)");
    } else if (!m->n_cells)
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        m->loading ? "when the model is loaded" : "no experts");
    else if (v->zoomed && (r.w - 14) / m->live.n_experts >= 4 && r.h >= 8)
        zoom_draw(c, r, m, v);
    else
        map_draw(c, r, m, v);
}

static bool experts_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    struct state *s = v->state;
    int l = m->cursor_layer, e = s->expert;

    if (a == ACTION_MODE) {
        m->heat = (m->heat + 1) % HEAT_MODES;
        return true;
    }
    if (!s->moved && m->n_cells &&
        (a == ACTION_UP || a == ACTION_DOWN || a == ACTION_LEFT || a == ACTION_RIGHT))
        hottest(m, &l, &e);
    if (!heat_map_move(a, &l, &e, m->live.n_layers, m->live.n_experts - 1))
        return false;
    m->cursor_layer = l;
    m->cursor_expert = s->expert = e;
    s->moved = true;
    return true;
}

const struct panel panel_experts = {
    .name = "experts",
    .open = true,
    .zoom = ACTION_ZOOM_EXPERTS,
    .state_size = sizeof(struct state),
    .column = 1,
    .priority = 2,
    .min = 4,
    .grow = 6,
    .least = experts_least,
    .want = experts_want,
    .most = experts_most,
    .step = experts_step,
    .across = experts_across,
    .draw = experts_draw,
    .side = experts_side,
    .act = experts_act,
    .focused = experts_focused,
    .explain = explain,
    .explain_server = explain_server,
    .keys = "arrows, m",
    .whole = true,
};
