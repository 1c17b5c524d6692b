/* Learning: which layers and experts learn. A map, layers down, the attention and then the experts
 * across; heat is the norm of a cell's gradient relative to the root mean square of all of them, on
 * a log scale with "as all" in the middle of the ramp. Half blocks show two layers per line if
 * lines are short; without colours a glyph's density is the heat. */
#include "ui/draw.h"
#include "ui/panels/heat_map.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>

static const char *const explain[] = {
    "a cell: norm of the gradient of what is trained there, before clipping, against the root mean "
    "square of all cells (middle of the ramp); each step is a factor 1.7",
    "A: the adapters of the layer's attention; numbers: those of an expert, gate, up and down "
    "together; of a dense layer there is one, and a shared expert stands behind the others",
    "black: no token of the step met that expert; empty: nothing is trained there",
    "%: its share of the square of the whole norm, so that all of them are 100 %",
    "F3 or m: the newest step, or all since the start (root of the mean square); arrows move the "
    "cursor, F4 or z is the whole screen",
    NULL,
};

#define RANK_W 30    /* columns of the list beside the map */
#define RANK_MOST 64 /* rows of it */

struct state {
    int layer, column; /* the cursor's; column 0: attention */
    bool moved;        /* the user moved it */
    int top;           /* first layer shown */
    int shown;         /* layers of the last drawing */
};

struct grid {              /* geometry of the map */
    int x;                 /* of the attention's cell; experts start a cell and a gap after it */
    int cell_w, bin, bins; /* columns per cell, experts per cell, cells */
    int per_line, lines;   /* layers per line, lines */
    int blocks, block_w;   /* folded deep maps: number side by side, columns between them */
    int width;             /* of all */
};

static const float *values(const struct ui_model *m)
{
    return m->heat == HEAT_SESSION ? m->training->mean : m->training->newest;
}

/* column 0: attention. NAN: not trained, or absent. */
static double value(const struct ui_model *m, int layer, int column)
{
    const struct ui_training *t = m->training;

    return layer < t->layers && column <= t->blocks
               ? (double)values(m)[layer * (1 + t->blocks) + column]
               : NAN;
}

/* Sum of the squares of all cells, and how many are trained. */
static double squares(const struct ui_model *m, int *n)
{
    const struct ui_training *t = m->training;
    double sum = 0;

    *n = 0;
    for (int i = 0; i < t->layers * (1 + t->blocks); i++) {
        double v = (double)values(m)[i];

        sum += isnan(v) ? 0 : v * v;
        *n += !isnan(v);
    }
    return sum;
}

static int level(double v, double rms)
{
    return v > 0 && rms > 0 ? heat_map_step(log2(v / rms)) : 0;
}

/* ---- geometry ---- */

/* Of a cell each, and a gap behind the attention's. */
static int columns(const struct ui_training *t)
{
    return 2 + t->blocks;
}

static int least_rows(const struct ui_model *m, int width)
{
    const struct ui_training *t = m->training;

    return t ? heat_map_rows(&m->theme, t->layers, columns(t), width) : 3;
}

static struct grid grid_make(const struct ui_model *m, struct rect r, int rows)
{
    const struct ui_training *t = m->training;
    struct grid g = {.bin = 1, .per_line = 1, .blocks = 1, .block_w = r.w};
    int room;

    if (rows < t->layers && !heat_map_glyphs(&m->theme))
        g.per_line = 2;
    if (rows * g.per_line < t->layers && heat_map_folds(t->layers, columns(t), g.per_line, r.w)) {
        g.blocks = 2;
        g.block_w = (r.w + 1) / 2;
    }
    g.x = r.x + heat_map_label_width(t->layers, g.per_line);
    room = g.block_w - (g.blocks > 1) - (g.x - r.x) - 1;
    while (room > 1 && (t->blocks + g.bin - 1) / g.bin + 1 > room)
        g.bin++;
    g.bins = (t->blocks + g.bin - 1) / g.bin;
    g.cell_w = room / (g.bins + 1);
    g.cell_w = g.cell_w > 3 ? 3 : g.cell_w < 1 ? 1 : g.cell_w;
    g.width = g.x - r.x + 1 + (g.bins + 1) * g.cell_w;
    if (g.blocks > 1) {
        g.block_w = g.width + 2 < g.block_w ? g.width + 2 : g.block_w;
        g.width += g.block_w;
    }
    g.lines = heat_map_lines(t->layers, g.per_line * g.blocks, rows);
    return g;
}

/* Columns of the training that a cell of the map stands for: cell 0 the attention. */
static void cell_columns(const struct ui_training *t, const struct grid *g, int cell, int *first,
                         int *end)
{
    *first = cell ? 1 + (cell - 1) * g->bin : 0;
    *end = cell ? 1 + cell * g->bin : 1;
    *end = *end > 1 + t->blocks ? 1 + t->blocks : *end;
}

static int cell_x(const struct grid *g, int cell)
{
    return g->x + cell * g->cell_w + (cell > 0);
}

static int cell_of(const struct grid *g, int column)
{
    return column ? 1 + (column - 1) / g->bin : 0;
}

/* ---- drawing ---- */

struct heat {
    bool there;
    int step;
};

/* The hottest of those in the cell. */
static struct heat cell_heat(const struct ui_model *m, const struct grid *g, int layer, int cell,
                             double rms)
{
    struct heat h = {0};
    int first, end;

    cell_columns(m->training, g, cell, &first, &end);
    for (int k = first; k < end; k++) {
        double v = value(m, layer, k);
        int step = level(v, rms);

        h.there = h.there || !isnan(v);
        h.step = step > h.step ? step : h.step;
    }
    return h;
}

static int16_t colour(const struct theme *t, struct heat h)
{
    return h.there ? theme_ramp(t, 0)[h.step] : -1;
}

static void cell_draw(struct canvas *c, const struct ui_model *m, const struct grid *g, int y,
                      int layer, int cell, double rms)
{
    const struct theme *t = &m->theme;
    struct heat a = cell_heat(m, g, layer, cell, rms), b = {0};
    int x = cell_x(g, cell);
    struct style s = {colour(t, a), -1, 0};
    uint32_t ch = 0x2588;

    if (g->per_line == 2)
        b = cell_heat(m, g, layer + 1, cell, rms);
    if (heat_map_glyphs(t)) {
        if (a.there)
            canvas_put(c, x, y, t->depth == THEME_MONO ? STYLE_PLAIN : s,
                       (unsigned char)heat_map_ramp[a.step]);
        return;
    }
    if (!a.there && !b.there)
        return;
    if (g->per_line == 2 && !a.there) {
        s.fg = colour(t, b);
        ch = 0x2584;
    } else if (g->per_line == 2) {
        s.bg = colour(t, b);
        ch = 0x2580;
    }
    for (int k = 0; k < (g->cell_w > 1 ? 2 : 1); k++)
        canvas_put(c, x + k, y, s, ch);
}

static void line_draw(struct canvas *c, int x, const struct ui_model *m, const struct grid *g,
                      int y, int layer, double rms)
{
    const struct ui_training *t = m->training;
    char label[32];

    if (layer >= t->layers)
        return;
    heat_map_label(label, layer, t->layers, g->per_line);
    canvas_text(c, x, y, theme_style(&m->theme, ROLE_STYLE_DIM), label);
    for (int i = 0; i <= g->bins; i++)
        cell_draw(c, m, g, y, layer, i, rms);
}

static void cursor_draw(struct canvas *c, const struct ui_model *m, const struct grid *g, int y,
                        int layer, const struct state *s)
{
    if (s->layer >= layer && s->layer < layer + g->per_line)
        heat_map_cursor(c, cell_x(g, cell_of(g, s->column)), y, g->cell_w, &m->theme,
                        s->layer > layer);
}

static void axis_draw(struct canvas *c, const struct ui_model *m, const struct grid *g, int y)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    bool pairs = g->cell_w >= 2; /* two digits at every second one */

    canvas_put(c, g->x, y, dim, 'A');
    if (g->bin > 1) {
        canvas_printf(c, cell_x(g, 1), y, dim, "%d experts a cell", g->bin);
        return;
    }
    for (int e = 0; e < g->bins; e += pairs ? 1 : 5)
        if (!pairs || e < 10 || (e % 2 == 0 && e < 100))
            canvas_printf(c, cell_x(g, 1 + e), y, dim, "%d", e);
}

/* "L5 E3", "L5 attention" */
static void cell_name(char *out, size_t size, const struct ui_training *t, int layer, int column)
{
    if (!column)
        snprintf(out, size, "L%d attention", layer);
    else if (column - 1 < t->routed[layer])
        snprintf(out, size, "L%d E%d", layer, column - 1);
    else
        snprintf(out, size, t->routed[layer] ? "L%d shared expert" : "L%d feed-forward", layer);
}

/* The default position of the cursor. */
static void hottest(const struct ui_model *m, int *layer, int *column)
{
    const struct ui_training *t = m->training;
    double best = -1;

    *layer = *column = 0;
    for (int l = 0; l < t->layers; l++)
        for (int k = 0; k <= t->blocks; k++)
            if (value(m, l, k) > best) {
                best = value(m, l, k);
                *layer = l;
                *column = k;
            }
}

static void foot_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m,
                      const struct state *s, bool focused, double sum)
{
    int layer = s->layer, column = s->column;
    char name[40], text[96];
    double v;

    if (!s->moved && !focused)
        hottest(m, &layer, &column);
    v = value(m, layer, column);
    cell_name(name, sizeof name, m->training, layer, column);
    if (isnan(v))
        snprintf(text, sizeof text, "%s: nothing is trained there", name);
    else if (!(v > 0))
        snprintf(text, sizeof text, "%s: no gradient%s", name,
                 m->heat == HEAT_SESSION ? " yet" : " in this step");
    else
        snprintf(text, sizeof text, "%s%s: gradient %.3g, %.1f %% of all",
                 !s->moved && !focused ? "most: " : "", name, v, 100 * v * v / sum);
    canvas_text_fit(c, r.x, y, r.w, theme_style(&m->theme, ROLE_STYLE_TEXT), text);
}

static void legend_draw(struct canvas *c, struct rect r, int y, const struct ui_model *m)
{
    const struct theme *t = &m->theme;
    struct style dim = theme_style(t, ROLE_STYLE_DIM);
    int x = canvas_text(c, r.x, y, dim, "little ");

    x = heat_map_legend(c, x, y, t, theme_ramp(t, 0), heat_map_ramp);
    x = canvas_text(c, x, y, dim, " much");
    if (x + 13 <= r.x + r.w)
        canvas_text(c, x + 2, y, dim, "A attention");
}

/* The cells with the largest gradients. */
static int rank_make(const struct ui_model *m, struct heat_map_cell *out, int most)
{
    int n = 0;

    for (int l = 0; l < m->training->layers; l++)
        for (int k = 0; k <= m->training->blocks; k++) {
            struct heat_map_cell x = {value(m, l, k), l, k};

            if (x.v > 0)
                n = heat_map_rank(out, n, most, x);
        }
    return n;
}

static void rank_draw(struct canvas *c, struct rect r, const struct ui_model *m, double sum)
{
    struct heat_map_cell rows[RANK_MOST];
    int n = rank_make(m, rows, r.h - 1 < RANK_MOST ? r.h - 1 : RANK_MOST);
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM),
                 text = theme_style(&m->theme, ROLE_STYLE_TEXT);
    char name[40], value_text[24];

    canvas_text(c, r.x, r.y, dim, "learn most");
    for (int i = 0; i < n; i++) {
        int y = r.y + 1 + i;

        cell_name(name, sizeof name, m->training, rows[i].layer, rows[i].column);
        canvas_text_fit(c, r.x, y, 14, text, name);
        snprintf(value_text, sizeof value_text, "%8.3g", rows[i].v);
        canvas_text_right(c, r.x + 23, y, text, value_text);
        snprintf(value_text, sizeof value_text, "%.1f %%", 100 * rows[i].v * rows[i].v / sum);
        canvas_text_right(c, r.x + RANK_W, y, dim, value_text);
    }
}

static void map_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                     const struct panel_view *v, double sum, double rms)
{
    int foot = r.h >= 4, below;
    struct state *s = v->state;
    struct grid g = grid_make(m, r, r.h - 1 - foot);
    bool beside = g.width + 4 + RANK_W <= r.w && r.h >= 5;

    s->top = heat_map_top(s->top, s->layer, m->training->layers, g.per_line, g.lines * g.blocks);
    s->shown = g.lines * g.per_line * g.blocks;
    for (int block = 0; block < g.blocks; block++) {
        struct grid half = g;

        half.x += block * g.block_w;
        axis_draw(c, m, &half, r.y);
        for (int i = 0; i < g.lines; i++) {
            int layer = s->top + (block * g.lines + i) * g.per_line;

            line_draw(c, r.x + block * g.block_w, m, &half, r.y + 1 + i, layer, rms);
            if (v->focused)
                cursor_draw(c, m, &half, r.y + 1 + i, layer, s);
        }
    }
    if (beside)
        rank_draw(c, (struct rect){r.x + g.width + 4, r.y, RANK_W, r.h - foot}, m, sum);
    below = r.y + 1 + g.lines;
    if (foot)
        foot_draw(c, r, below < r.y + r.h ? below : r.y + r.h - 1, m, s, v->focused, sum);
    if (foot && below + 1 < r.y + r.h)
        legend_draw(c, (struct rect){r.x, r.y, beside ? g.width : r.w, r.h}, below + 1, m);
}

static void learning_draw(struct canvas *c, struct rect r, struct ui_model *m,
                          const struct panel_view *v)
{
    int n;
    double sum;

    if (!m->training || !m->training->layers)
        return;
    sum = squares(m, &n);
    if (sum > 0)
        map_draw(c, r, m, v, sum, sqrt(sum / n));
    else
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        "with the first step");
}

static int learning_most(const struct ui_model *m, int width)
{
    return (m->training ? m->training->layers : 0) + 3;
}

static int learning_step(const struct ui_model *m, int width)
{
    int least = least_rows(m, width);

    return m->training && least < m->training->layers + 2 ? least : 0;
}

static void learning_side(const struct ui_model *m, const struct panel_view *v, char *out,
                          size_t size)
{
    const struct state *s = v->state;

    if (m->training && s->shown < m->training->layers && s->shown > 0)
        snprintf(out, size, "L%d–%d of %d · %s", s->top, s->top + s->shown - 1, m->training->layers,
                 ui_heat_word(m));
    else
        snprintf(out, size, "gradient · %s", ui_heat_word(m));
}

/* The cursor starts at the cell of the foot line. */
static void learning_focused(struct ui_model *m, const struct panel_view *v)
{
    struct state *s = v->state;

    if (!s->moved && m->training)
        hottest(m, &s->layer, &s->column);
}

static bool learning_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    const struct ui_training *t = m->training;
    struct state *s = v->state;

    if (!t || !heat_map_move(a, &s->layer, &s->column, t->layers, t->blocks))
        return false;
    s->moved = true;
    return true;
}

const struct panel panel_learning = {
    .name = "learning",
    .open = true,
    .place = PANEL_OF_TRAINING,
    .zoom = ACTION_ZOOM_EXPERTS,
    .state_size = sizeof(struct state),
    .priority = 2,
    .min = 3,
    .grow = 2,
    .want = least_rows,
    .most = learning_most,
    .step = learning_step,
    .draw = learning_draw,
    .side = learning_side,
    .act = learning_act,
    .focused = learning_focused,
    .explain = explain,
    .keys = "arrows, m",
};
