/* See svg_plot.h. Each drawing is an <svg> of its own, so that several can be stacked in a file;
 * the colours are legible on white and in greyscale. */
#include "app/common/svg_plot.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 860
#define LEFT 250
#define RIGHT 180
#define ROW 28
#define TOP 44
#define LABEL 34 /* columns of text that fit left of the bars */

static void put_text(struct strbuf *b, const char *s)
{
    for (; s && *s; s++) {
        switch (*s) {
        case '<': strbuf_puts(b, "&lt;"); break;
        case '>': strbuf_puts(b, "&gt;"); break;
        case '&': strbuf_puts(b, "&amp;"); break;
        case '"': strbuf_puts(b, "&quot;"); break;
        default: strbuf_putc(b, (unsigned char)*s < 0x20 ? ' ' : *s);
        }
    }
}

static void begin(struct strbuf *b, const char *title, int width, int height)
{
    strbuf_printf(b,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
                  "<title>",
                  width, height, width, height);
    put_text(b, title);
    strbuf_printf(b,
                  "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n<text x=\"12\" "
                  "y=\"24\" font-size=\"16\" font-weight=\"bold\">",
                  width, height);
    put_text(b, title);
    strbuf_puts(b, "</text>\n");
}

/* 1, 2 or 5 times a power of ten: about five steps up to max. */
static double nice_step(double max)
{
    double p, m;

    if (!(max > 0) || !isfinite(max))
        return 1;
    p = pow(10, floor(log10(max / 5)));
    m = max / 5 / p;
    return p * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

/* Significant digits only: 12718, 272.5, 4.18. */
static int digits(double v)
{
    v = fabs(v);
    return v >= 1000 || v == 0 ? 0 : v >= 100 ? 1 : v >= 1 ? 2 : 4;
}

/* Text that ends at x; if too long it is cut at the left with an ellipsis, where the SVG would clip
 * it silently. */
static void put_label(struct strbuf *b, const char *s, size_t most)
{
    size_t n = strlen(s), used;

    if (utf8_width(s, n) > most) {
        char cut[300];

        used = utf8_fit(s, n, most - 1, NULL);
        snprintf(cut, sizeof cut, "%.*s…", (int)(used < sizeof cut - 4 ? used : sizeof cut - 4), s);
        put_text(b, cut);
    } else {
        put_text(b, s);
    }
}

static char *finish(struct strbuf *b)
{
    strbuf_puts(b, "</svg>\n");
    return strbuf_take(b, NULL);
}

char *plot_bars(const char *title, const char *unit, const struct plot_bar *bars, size_t n)
{
    struct strbuf b = {0};
    int height = TOP + (int)n * ROW + 62;
    double max = 0, step, scale;
    bool limits = false;

    for (size_t i = 0; i < n; i++) {
        max = fmax(max, fmax(bars[i].figures.max, bars[i].figures.mean + bars[i].figures.sd));
        max = fmax(max, bars[i].limit);
        limits |= bars[i].limit > 0;
    }
    max = max > 0 && isfinite(max) ? max * 1.02 : 1;
    step = nice_step(max);
    scale = (WIDTH - LEFT - RIGHT) / max;
    begin(&b, title, WIDTH, height);
    for (double v = 0; v <= max; v += step)
        strbuf_printf(&b,
                      "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#dddddd\"/><text "
                      "x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" "
                      "fill=\"#666666\">%g</text>\n",
                      LEFT + v * scale, TOP - 6, LEFT + v * scale, height - 56, LEFT + v * scale,
                      height - 40, v);
    strbuf_printf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#666666\">", WIDTH - 12,
                  height - 40);
    put_text(&b, unit);
    strbuf_printf(&b,
                  "</text>\n<text x=\"%d\" y=\"%d\" fill=\"#666666\">bar: median; box: mean ± "
                  "standard deviation; line: least to most%s</text>\n",
                  LEFT, height - 14, limits ? "; red: roofline" : "");
    for (size_t i = 0; i < n; i++) {
        const struct series_figures *f = &bars[i].figures;
        double y = TOP + (double)i * ROW, low = fmax(0, f->mean - f->sd), high = f->mean + f->sd;

        strbuf_printf(&b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8, y + 16);
        put_label(&b, bars[i].label, LABEL);
        strbuf_printf(
            &b,
            "</text>\n<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"16\" fill=\"#4c78a8\"/>\n",
            LEFT, y + 3, f->median * scale);
        if (f->n != 1)
            strbuf_printf(
                &b,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#222222\"/>\n"
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"8\" fill=\"none\" "
                "stroke=\"#222222\"/>\n",
                LEFT + f->min * scale, y + 11, LEFT + f->max * scale, y + 11, LEFT + low * scale,
                y + 7, (high - low) * scale);
        if (bars[i].limit > 0)
            strbuf_printf(&b,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                          "stroke=\"#e45756\" stroke-width=\"3\"/>\n",
                          LEFT + bars[i].limit * scale, y + 1, LEFT + bars[i].limit * scale,
                          y + 21);
        strbuf_printf(&b, "<text x=\"%d\" y=\"%.1f\">%.*f", WIDTH - RIGHT + 8, y + 16,
                      digits(f->median), f->median);
        if (f->n != 1)
            strbuf_printf(&b, " ± %.*f", digits(f->median), f->sd);
        if (bars[i].note && *bars[i].note) {
            strbuf_puts(&b, " (");
            put_text(&b, bars[i].note);
            strbuf_puts(&b, ")");
        }
        strbuf_puts(&b, "</text>\n");
    }
    return finish(&b);
}

/* White through yellow and red to dark: monotonic in lightness, so that greyscale keeps the order.
 */
static void heat(double v, char out[8])
{
    static const int stops[5][3] = {
        {255, 255, 255}, {255, 237, 160}, {254, 178, 76}, {240, 59, 32}, {90, 0, 20}};
    double x = v > 0 ? (v < 1 ? v : 1) * 4 : 0;
    int i = x >= 4 ? 3 : (int)x, c[3];

    for (int k = 0; k < 3; k++)
        c[k] = (int)lround(stops[i][k] + (stops[i + 1][k] - stops[i][k]) * (x - i));
    snprintf(out, 8, "#%02x%02x%02x", c[0] & 255, c[1] & 255, c[2] & 255);
}

char *plot_map(const char *title, const double *values, const uint8_t *shape, int rows, int columns)
{
    struct strbuf b = {0};
    int cell = columns > 64 ? 8 : 18, width = 70 + columns * cell, height = TOP + rows * cell + 74;
    double max = 0;

    for (int i = 0; i < rows * columns; i++)
        max = values[i] > max ? values[i] : max;
    begin(&b, title, width < 420 ? 420 : width, height);
    for (int r = 0; r < rows; r++) {
        if (r % 4 == 0)
            strbuf_printf(
                &b, "<text x=\"44\" y=\"%d\" text-anchor=\"end\" fill=\"#666666\">%d</text>\n",
                TOP + r * cell + cell / 2 + 5, r);
        for (int c = 0; c < columns; c++) {
            double v = max > 0 ? values[r * columns + c] / max : 0;
            char colour[8];

            heat(v, colour);
            strbuf_printf(&b,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
                          "stroke=\"#cccccc\"><title>layer %d expert %d: %g</title></rect>\n",
                          50 + c * cell, TOP + r * cell, cell, cell, colour, r, c,
                          values[r * columns + c]);
            if (shape && shape[r * columns + c])
                strbuf_printf(
                    &b,
                    "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" fill=\"#1f77b4\" stroke=\"#ffffff\"/>\n",
                    50 + c * cell + cell / 2, TOP + r * cell + cell / 2, cell / 5 + 1);
        }
    }
    for (int c = 0; c < columns; c += 4)
        strbuf_printf(&b,
                      "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#666666\">%d</text>\n",
                      50 + c * cell + cell / 2, height - 56, c);
    strbuf_printf(&b,
                  "<text x=\"%d\" y=\"%d\" fill=\"#666666\">expert →</text>\n<text x=\"14\" "
                  "y=\"%d\" fill=\"#666666\" "
                  "transform=\"rotate(90 14 %d)\">layer →</text>\n",
                  50, height - 38, TOP, TOP);
    for (int i = 0; i <= 8; i++) { /* the colour scale */
        char colour[8];

        heat(i / 8.0, colour);
        strbuf_printf(
            &b,
            "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"12\" fill=\"%s\" stroke=\"#cccccc\"/>\n",
            68 + i * 18, height - 26, colour);
    }
    strbuf_printf(&b,
                  "<text x=\"60\" y=\"%d\" text-anchor=\"end\" fill=\"#666666\">0</text>\n<text "
                  "x=\"%d\" y=\"%d\" fill=\"#666666\">%.*f</text>\n",
                  height - 16, 68 + 9 * 18 + 6, height - 16, max == floor(max) ? 0 : digits(max),
                  max);
    return finish(&b);
}

char *plot_curve(const char *title, const char *x_unit, const char *y_unit,
                 const struct plot_point *points, size_t n)
{
    struct strbuf b = {0};
    int height = 380, left = 70, bottom = height - 50, best = 0;
    double max_x = 0, max_y = 0, sx, sy, step;

    for (size_t i = 0; i < n; i++) {
        max_x = fmax(max_x, points[i].x);
        max_y = fmax(max_y, points[i].y);
        best = points[i].y > points[best].y ? (int)i : best;
    }
    max_x = max_x > 0 ? max_x : 1;
    max_y = max_y > 0 ? max_y * 1.08 : 1;
    sx = (WIDTH - left - 40) / max_x;
    sy = (bottom - TOP) / max_y;
    begin(&b, title, WIDTH, height);
    step = nice_step(max_y);
    for (double v = 0; v <= max_y; v += step)
        strbuf_printf(&b,
                      "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/><text "
                      "x=\"%d\" y=\"%.1f\" text-anchor=\"end\" "
                      "fill=\"#666666\">%g</text>\n",
                      left, bottom - v * sy, WIDTH - 40, bottom - v * sy, left - 6,
                      bottom - v * sy + 4, v);
    step = nice_step(max_x);
    for (double v = 0; v <= max_x; v += step)
        strbuf_printf(
            &b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#666666\">%g</text>\n",
            left + v * sx, bottom + 18, v);
    strbuf_printf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#666666\">", WIDTH - 40,
                  height - 10);
    put_text(&b, x_unit);
    strbuf_printf(&b, "</text>\n<text x=\"12\" y=\"%d\" fill=\"#666666\">", TOP - 4);
    put_text(&b, y_unit);
    strbuf_puts(&b,
                "</text>\n<polyline fill=\"none\" stroke=\"#4c78a8\" stroke-width=\"2\" points=\"");
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&b, "%.1f,%.1f ", left + points[i].x * sx, bottom - points[i].y * sy);
    strbuf_puts(&b, "\"/>\n");
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n",
                      left + points[i].x * sx, bottom - points[i].y * sy, (int)i == best ? 6 : 3,
                      (int)i == best ? "#e45756" : "#4c78a8");
    return finish(&b);
}

int plot_write(const char *path, char *const *drawings, size_t n, struct error *e)
{
    struct strbuf b = {0};
    int y = 0, width = 0, w, h, rc;

    /* the outer drawing is as large as the stack */
    for (size_t i = 0; i < n; i++) {
        if (!drawings[i])
            return error_set(e, ERR_MEMORY, "out of memory for '%s'", path);
        if (sscanf(drawings[i],
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", &w,
                   &h) == 2) {
            width = w > width ? w : width;
            y += h;
        }
    }
    strbuf_printf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n",
                  width, y);
    y = 0;
    for (size_t i = 0; i < n; i++) {
        if (sscanf(drawings[i],
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", &w,
                   &h) != 2)
            continue;
        strbuf_printf(&b, "<g transform=\"translate(0,%d)\">\n", y);
        strbuf_puts(&b, drawings[i]);
        strbuf_puts(&b, "</g>\n");
        y += h;
    }
    strbuf_puts(&b, "</svg>\n");
    rc = b.failed ? error_set(e, ERR_MEMORY, "out of memory for '%s'", path)
                  : file_replace(path, b.data, b.len, e);
    strbuf_release(&b);
    return rc;
}
