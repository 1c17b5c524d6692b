/* See training.h. */
#include "ui/training.h"

static void take(struct ui_curve_point *p, float loss, int step, int n)
{
    p->last = step;
    p->mean += (loss - p->mean) / (float)n;
    p->low = n == 1 || loss < p->low ? loss : p->low;
    p->high = n == 1 || loss > p->high ? loss : p->high;
}

static void halve(struct ui_curve *c)
{
    for (int i = 0; i < c->n / 2; i++) {
        const struct ui_curve_point a = c->points[2 * i], b = c->points[2 * i + 1];

        c->points[i] = (struct ui_curve_point){.last = b.last,
                                               .mean = (a.mean + b.mean) / 2,
                                               .low = a.low < b.low ? a.low : b.low,
                                               .high = a.high > b.high ? a.high : b.high};
    }
    c->n /= 2;
    c->each *= 2;
    c->open = c->each;
}

void ui_curve_add(struct ui_curve *c, int step, double loss)
{
    if (!c->each)
        c->each = c->open = 1;
    if (c->open == c->each && c->n == UI_CURVE)
        halve(c);
    if (c->open == c->each) {
        c->points[c->n++] = (struct ui_curve_point){0};
        c->open = 0;
    }
    take(&c->points[c->n - 1], (float)loss, step, ++c->open);
}
