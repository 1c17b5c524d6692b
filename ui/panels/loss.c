/* Loss: its curve so far, on an axis of the run's whole length, with a mark for each validation;
 * below it, if there are rows, the learning rate schedule. */
#include "ui/draw.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const explain[] = {
    "the line: loss of each step, or where a column holds several, their mean between the smallest "
    "and the largest; left is the first step, right the last one of the run",
    "marks: loss of the validation lines after that step",
    "below: the learning rate from the first step to the last, bright as far as it was used",
    NULL,
};

#define AXIS 7       /* columns of the numbers at the left */
#define RATE_ROWS 2  /* of the learning rate schedule */
#define RATE_FROM 11 /* rows of the panel from which it is shown */

struct scale {
    double low, high;
    int from, to; /* steps at the left and at the right */
};

struct plot {
    struct canvas *c;
    struct rect r;
    struct scale s;
};

static int loss_want(const struct ui_model *m, int width)
{
    return 5;
}

static void loss_side(const struct ui_model *m, const struct panel_view *v, char *out, size_t size)
{
    const struct ui_training *t = m->training;

    if (!t || t->step == t->from)
        return;
    if (isnan(t->valid_best))
        snprintf(out, size, "loss %.4f", t->loss);
    else
        snprintf(out, size, "loss %.4f · best validation %.4f at %d", t->loss, t->valid_best,
                 t->best_at);
}

/* ---- scales ---- */

static void widen(struct scale *s, double low, double high)
{
    s->low = low < s->low ? low : s->low;
    s->high = high > s->high ? high : s->high;
}

static struct scale scale_make(const struct ui_training *t)
{
    struct scale s = {INFINITY, -INFINITY, t->from, t->steps};

    for (int i = 0; i < t->loss_curve.n; i++)
        widen(&s, t->loss_curve.points[i].mean, t->loss_curve.points[i].mean);
    for (int i = 0; i < t->valid_curve.n; i++)
        widen(&s, t->valid_curve.points[i].mean, t->valid_curve.points[i].mean);
    if (!(s.high - s.low > 0.02 * s.high)) /* one point, or a flat line */
        widen(&s, 0.98 * s.low, 1.02 * s.high);
    return s;
}

/* Dots from the left: two per cell. */
static int dot_x(const struct plot *p, double step)
{
    int dots = 2 * p->r.w, n = p->s.to - p->s.from,
        x = n > 0 ? (int)((step - p->s.from - 0.5) / n * dots) : 0;

    return x < 0 ? 0 : x >= dots ? dots - 1 : x;
}

/* Dots from the top: four per cell. */
static int dot_y(const struct plot *p, double value)
{
    int dots = 4 * p->r.h,
        y = (int)lround((p->s.high - value) / (p->s.high - p->s.low) * (dots - 1));

    return y < 0 ? 0 : y >= dots ? dots - 1 : y;
}

/* Adds a dot to the cell's Braille character. */
static void dot_put(const struct plot *p, int x, int y, struct style s)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int cx = p->r.x + x / 2, cy = p->r.y + y / 4;
    const struct cell *cell = canvas_at(p->c, cx, cy);
    uint32_t ch = cell && cell->ch >= 0x2800 && cell->ch < 0x2900 ? cell->ch : 0x2800;

    canvas_put(p->c, cx, cy, s, ch | bits[y % 4][x % 2]);
}

/* ---- drawing ---- */

static void curve_draw(const struct plot *p, const struct ui_curve *k, struct style s)
{
    int x0 = 0, y0 = 0;

    for (int i = 0; i < k->n; i++) {
        int x1 = dot_x(p, k->points[i].last - (k->each - 1) / 2.0),
            y1 = dot_y(p, k->points[i].mean), n;

        if (i == 0) {
            x0 = x1;
            y0 = y1;
        }
        n = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
        for (int d = 0; d <= n; d++)
            dot_put(p, n ? x0 + (x1 - x0) * d / n : x1, n ? y0 + (y1 - y0) * d / n : y1, s);
        x0 = x1;
        y0 = y1;
    }
}

static void marks_draw(const struct plot *p, const struct ui_training *t, const struct theme *theme)
{
    const struct ui_curve *k = &t->valid_curve;

    for (int i = 0; i < k->n; i++)
        canvas_put(p->c, p->r.x + dot_x(p, k->points[i].last) / 2,
                   p->r.y + dot_y(p, k->points[i].mean) / 4, theme_style(theme, ROLE_STYLE_GPU),
                   theme->ascii ? 'o' : 0x25cf);
}

static void number(char *out, size_t size, double v)
{
    snprintf(out, size, "%.*f", v >= 99.995 ? 1 : v >= 9.9995 ? 2 : 3, v);
}

static void axis_draw(const struct plot *p, const struct ui_model *m)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM),
                 rule = theme_style(&m->theme, ROLE_STYLE_RULE);
    int rows[3] = {0, p->r.h / 2, p->r.h - 1}, n = p->r.h >= 5 ? 3 : p->r.h >= 2 ? 2 : 1;
    char text[24];

    for (int y = 0; y < p->r.h; y++)
        canvas_put(p->c, p->r.x - 1, p->r.y + y, rule, 0x2502);
    for (int i = 0; i < n; i++) {
        int y = i == n - 1 && n > 1 ? rows[2] : rows[i];
        double v = p->r.h > 1 ? p->s.high - (p->s.high - p->s.low) * y / (p->r.h - 1) : p->s.high;

        number(text, sizeof text, v);
        canvas_text_right(p->c, p->r.x - 1, p->r.y + y, dim, text);
    }
}

/* Numbers of the first and the last step, and a legend. */
static void foot_draw(const struct plot *p, const struct ui_model *m, int y)
{
    const struct ui_training *t = m->training;
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[24];
    int x, end = p->r.x + p->r.w;

    snprintf(text, sizeof text, "%d", t->from + 1);
    x = canvas_text(p->c, p->r.x, y, dim, text) + 2;
    snprintf(text, sizeof text, "%d", t->steps);
    end = canvas_text_right(p->c, end, y, dim, text) - 2;
    if (x + 6 > end)
        return;
    canvas_put(p->c, x, y, theme_style(&m->theme, ROLE_STYLE_CPU), m->theme.ascii ? ':' : 0x2836);
    x = canvas_text(p->c, x + 1, y, dim, " loss");
    if (!t->has_valid || x + 15 > end)
        return;
    canvas_put(p->c, x + 2, y, theme_style(&m->theme, ROLE_STYLE_GPU),
               m->theme.ascii ? 'o' : 0x25cf);
    canvas_text(p->c, x + 3, y, dim, " validation");
}

/* The learning rate schedule, a bar per column; bright up to the current step. */
static void rates_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    const struct ui_training *t = m->training;
    struct style used = theme_style(&m->theme, ROLE_STYLE_GRAPH),
                 ahead = theme_style(&m->theme, ROLE_STYLE_RULE),
                 dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    double top = 0;

    for (int i = 0; i < UI_RATES; i++)
        top = t->rates[i] > top ? t->rates[i] : top;
    canvas_text_right(c, r.x - 1, r.y, dim, "lr");
    for (int x = 0; x < r.w && top > 0; x++) {
        double at = (x + 0.5) / r.w, step = t->from + at * (t->steps - t->from),
               rows = t->rates[(int)(step / t->steps * (UI_RATES - 1) + 0.5)] / top * r.h;

        for (int y = 0; y < r.h; y++) {
            double part = rows - y;

            if (part > 0)
                canvas_put(c, r.x + x, r.y + r.h - 1 - y, step <= t->step ? used : ahead,
                           draw_level(part > 1       ? 1
                                      : part < 0.125 ? 0.125
                                                     : part));
        }
    }
}

static void loss_draw(struct canvas *c, struct rect r, struct ui_model *m,
                      const struct panel_view *v)
{
    const struct ui_training *t = m->training;
    int foot = r.h >= 4, rates = r.h >= RATE_FROM ? RATE_ROWS : 0;
    struct plot p = {.c = c, .r = {r.x + AXIS, r.y, r.w - AXIS, r.h - foot - rates}};

    if (!t || p.r.w < 4 || p.r.h < 1)
        return;
    if (!t->loss_curve.n) {
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        "with the first step");
        return;
    }
    p.s = scale_make(t);
    axis_draw(&p, m);
    curve_draw(&p, &t->loss_curve, theme_style(&m->theme, ROLE_STYLE_CPU));
    marks_draw(&p, t, &m->theme);
    if (foot)
        foot_draw(&p, m, r.y + p.r.h);
    if (rates)
        rates_draw(c, (struct rect){p.r.x, r.y + p.r.h + foot, p.r.w, rates}, m);
}

const struct panel panel_loss = {
    .name = "loss",
    .open = true,
    .place = PANEL_OF_TRAINING,
    .priority = 3,
    .min = 3,
    .grow = 3,
    .want = loss_want,
    .draw = loss_draw,
    .side = loss_side,
    .explain = explain,
};
