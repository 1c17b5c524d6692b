/* Training: progress of the run and its newest figures, in as many columns as fit. The most
 * important ones come first, for when rows are short. */
#include "ui/draw.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>

static const char *const explain[] = {
    "left: at the mean speed of this run so far, validations included",
    "loss: of the newest step, in nats a learned token (ln of the perplexity)",
    "validation: the same of lines that are not learned; the steps after which it was taken",
    "lr: learning rate of the newest step; it rises over the warm-up, then falls as half a cosine",
    "gradient: norm of all gradients of the newest step together; clipped: it was larger than the "
    "bound, and was scaled down to it",
    "speed: tokens a second, learned ones and those that are only read, mean of this run",
    "a step: seconds that the newest one took, and its lines",
    NULL,
};

enum { STEP, LEFT, LOSS, VALID, LR, GRADIENT, SPEED, SECONDS, FIGURES };

static const char *const labels[FIGURES] = {"step", "left",     "loss",  "validation",
                                            "lr",   "gradient", "speed", "a step"};

#define LABEL 11  /* columns of a label */
#define FIGURE 26 /* columns of a label and its figure */
#define NARROW 4  /* rows of figures in one column */

static int columns(int width)
{
    int n = (width + 2) / FIGURE;

    return n < 1 ? 1 : n > 4 ? 4 : n == 3 ? 2 : n;
}

static int training_want(const struct ui_model *m, int width)
{
    int n = columns(width);

    return 1 + (n == 1 ? NARROW : (FIGURES + n - 1) / n);
}

static void training_side(const struct ui_model *m, const struct panel_view *v, char *out,
                          size_t size)
{
    const struct ui_training *t = m->training;

    if (t)
        snprintf(out, size, "rank %d on %d matrices · %d lines", t->rank, t->matrices, t->lines);
}

static void loss_text(char *out, size_t size, const struct ui_training *t)
{
    if (t->step > t->from)
        snprintf(out, size, "%.4f", t->loss);
    else
        snprintf(out, size, "–");
}

static void valid_text(char *out, size_t size, const struct ui_training *t)
{
    if (t->validating)
        snprintf(out, size, "being taken");
    else if (!t->has_valid)
        snprintf(out, size, "no --valid");
    else if (isnan(t->valid))
        snprintf(out, size, "–");
    else
        snprintf(out, size, "%.4f at %d", t->valid, t->valid_at);
}

static void figure_text(char *out, size_t size, const struct ui_training *t, int which)
{
    char a[24];
    bool any = t->step > t->from;

    switch (which) {
    case STEP: snprintf(out, size, "%d of %d", t->step, t->steps); break;
    case LEFT: snprintf(out, size, "%s", draw_time(a, t->left_s)); break;
    case LOSS: loss_text(out, size, t); break;
    case VALID: valid_text(out, size, t); break;
    case LR: snprintf(out, size, any ? "%.3g" : "–", t->lr); break;
    case GRADIENT:
        snprintf(out, size, any ? "%.3g%s" : "–", t->grad_norm,
                 t->clip > 0 && t->grad_norm > t->clip ? " clipped" : "");
        break;
    case SPEED: snprintf(out, size, any ? "%s tok/s" : "–", draw_rate(a, t->tok_s)); break;
    default:
        if (any)
            snprintf(out, size, "%.*f s, %d x %d", t->step_s < 9.995 ? 2 : 1, t->step_s, t->batch,
                     t->accumulation);
        else
            snprintf(out, size, "–");
    }
}

static void training_draw(struct canvas *c, struct rect r, struct ui_model *m,
                          const struct panel_view *v)
{
    const struct ui_training *t = m->training;
    const struct theme *theme = &m->theme;
    int n = columns(r.w), width = (r.w + 2) / n;
    char text[48];
    double share;

    if (!t)
        return;
    share = t->steps ? (double)t->step / t->steps : 0;
    snprintf(text, sizeof text, "%3.0f %%", 100 * share);
    draw_bar(c, r.x, r.y, r.w - 6, share, theme_style(theme, ROLE_STYLE_CPU),
             theme_style(theme, ROLE_STYLE_RULE));
    canvas_text_right(c, r.x + r.w, r.y, theme_style(theme, ROLE_STYLE_FIGURE), text);
    for (int i = 0; i < FIGURES; i++) {
        int x = r.x + i % n * width, y = r.y + 1 + i / n;

        if (y >= r.y + r.h)
            break;
        figure_text(text, sizeof text, t, i);
        canvas_text(c, x, y, theme_style(theme, ROLE_STYLE_DIM), labels[i]);
        canvas_text_fit(c, x + LABEL, y, width - LABEL - (i % n < n - 1 ? 2 : 0),
                        theme_style(theme, ROLE_STYLE_FIGURE), text);
    }
}

const struct panel panel_training = {
    .name = "training",
    .open = true,
    .place = PANEL_OF_TRAINING,
    .priority = 1,
    .min = 2,
    .want = training_want,
    .most = training_want,
    .draw = training_draw,
    .side = training_side,
    .explain = explain,
};
