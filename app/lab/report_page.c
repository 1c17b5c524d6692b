/* A report as one HTML page with its drawings in it; see report.h. */
#include "app/lab/report.h"

#include "app/common/svg_plot.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"

#include <stdlib.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n"
    "<meta name=viewport content=\"width=device-width\">\n<title>moetop: routing</title>\n"
    "<style>:root{color-scheme:light dark}body{font:16px/1.5 sans-serif;max-width:70rem;"
    "margin:2rem auto;padding:0 1rem}pre{font:13px/1.4 monospace;overflow-x:auto}"
    "svg{max-width:100%;height:auto;background:#fff;display:block;margin:1rem 0}</style>\n";

static void put_html(struct strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        switch (s[i]) {
        case '<': strbuf_puts(b, "&lt;"); break;
        case '>': strbuf_puts(b, "&gt;"); break;
        case '&': strbuf_puts(b, "&amp;"); break;
        default: strbuf_putc(b, s[i]);
        }
}

/* Takes the drawing; NULL: no memory. */
static void put_drawing(struct strbuf *b, char *svg)
{
    if (svg)
        strbuf_puts(b, svg);
    else
        b->failed = true;
    mem_free(svg);
}

/* Share of the tokens that chose each expert. */
static char *map_of(const struct trace_report *r)
{
    int columns = r->trace->head.experts;
    double *values = mem_alloc((size_t)r->trace->head.layers * (size_t)columns, sizeof *values);
    char *svg = NULL;

    for (int l = 0; l < r->n_layers && values; l++)
        for (int x = 0; x < r->layers[l].experts; x++)
            values[r->layers[l].layer * columns + x] = r->layers[l].counts[x] / (double)r->trace->n;
    if (values)
        svg = plot_map("Share of the tokens that chose an expert, by layer", values, NULL,
                       r->trace->head.layers, columns);
    mem_free(values);
    return svg;
}

static char *curve(const struct trace_report *r, const char *title, const char *unit,
                   double (*of)(const struct layer_report *p))
{
    struct plot_point *points = mem_alloc((size_t)r->n_layers, sizeof *points);
    char *svg = NULL;

    for (int l = 0; l < r->n_layers && points; l++)
        points[l] = (struct plot_point){r->layers[l].layer, of(&r->layers[l])};
    if (points)
        svg = plot_curve(title, "layer", unit, points, (size_t)r->n_layers);
    mem_free(points);
    return svg;
}

static double gini_of(const struct layer_report *p)
{
    return p->gini.value;
}

static double kept_of(const struct layer_report *p)
{
    return 100 * p->persistence;
}

static double told_of(const struct layer_report *p)
{
    return 100 * p->ahead;
}

static double class_of(const struct layer_report *p)
{
    return p->tests[FACTOR_CLASS].v;
}

static void put_trace(struct strbuf *b, const struct trace_report *r)
{
    strbuf_puts(b, "<h2>");
    put_html(b, path_name(r->trace->path), strlen(path_name(r->trace->path)));
    strbuf_puts(b, "</h2>\n");
    put_drawing(b, map_of(r));
    if (r->n_layers < 2)
        return;
    put_drawing(b, curve(r, "Gini coefficient of the load", "Gini", gini_of));
    put_drawing(b, curve(r, "Experts kept from token to token", "%", kept_of));
    put_drawing(b, curve(r, "Experts told by the layer before", "%", told_of));
    put_drawing(b, curve(r, "Specialisation by class of token (Cramér's V)", "V", class_of));
}

static double overlap_at(const struct trace_comparison *c, int l)
{
    return 100 * c->layers[l].overlap.value;
}

static void put_overlap(struct strbuf *b, const struct trace_comparison *c)
{
    struct plot_point *points = mem_alloc((size_t)c->n_layers, sizeof *points);

    for (int l = 0; l < c->n_layers && points; l++)
        points[l] = (struct plot_point){c->layers[l].layer, overlap_at(c, l)};
    put_drawing(b, points ? plot_curve("Experts that both traces chose for a token", "layer", "%",
                                       points, (size_t)c->n_layers)
                          : NULL);
    mem_free(points);
}

int report_page_write(const char *path, const struct trace_report *r, size_t n,
                      const struct trace_comparison *c, struct error *e)
{
    struct strbuf b = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int rc;

    if (f) {
        report_text(f, r, n, c);
        fclose(f);
    }
    strbuf_puts(&b, head);
    strbuf_puts(&b, "<h1>Routing of a mixture of experts</h1>\n");
    for (size_t i = 0; i < n; i++)
        put_trace(&b, &r[i]);
    if (c && c->common && c->n_layers > 1) {
        strbuf_puts(&b, "<h2>Both</h2>\n");
        put_overlap(&b, c);
    }
    strbuf_puts(&b, "<h2>Figures</h2>\n<pre>");
    put_html(&b, text, size);
    strbuf_puts(&b, "</pre>\n<p>Formulas: moetop-lab(7).</p>\n</html>\n");
    rc = b.failed || !text ? error_set(e, ERR_MEMORY, "out of memory for the page")
                           : file_replace(path, b.data, b.len, e);
    free(text); /* the C library's */
    strbuf_release(&b);
    return rc;
}
