/* See report_drawings.h. */
#include "app/lab/report_drawings.h"

#include "app/common/svg_plot.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdio.h>
#include <string.h>

static double gini_of(const struct layer_report *p)
{
    return p->gini.value;
}

static double entropy_of(const struct layer_report *p)
{
    return p->entropy.value;
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

static double margin_of(const struct layer_report *p)
{
    return p->margin_median;
}

static double language_of(const struct layer_report *p)
{
    return p->tests[FACTOR_LANGUAGE].v;
}

static double relation_of(const struct layer_report *p)
{
    return p->relation.rho.value;
}

/* A figure by layer. */
static const struct curve {
    const char *name, *title, *unit;
    double (*of)(const struct layer_report *p);
    bool scores, logprobs; /* only where those were recorded */
} curves[] = {
    {"entropy", "Entropy of the load", "bits", entropy_of, false, false},
    {"gini", "Gini coefficient of the load", "Gini", gini_of, false, false},
    {"kept", "Experts kept from token to token", "%", kept_of, false, false},
    {"told", "Experts told by the layer before", "%", told_of, false, false},
    {"class", "Specialisation by class of token (Cramér's V)", "V", class_of, false, false},
    {"language", "Specialisation by language of text (Cramér's V)", "V", language_of, false, false},
    {"margin", "The router's margin (median)", "score", margin_of, true, false},
    {"surprise", "The router's margin and -ln p of the next token", "rho", relation_of, true, true},
};

static struct report_drawing *add(struct report_drawings *d, int of, size_t n, const char *name)
{
    struct report_drawing *x = &d->items[d->n++];

    x->of = of;
    if (n > 1 && of >= 0)
        snprintf(x->name, sizeof x->name, "%d-%s", of + 1, name);
    else
        snprintf(x->name, sizeof x->name, "%s", name);
    return x;
}

/* Takes b's text. */
static int finish(struct report_drawing *x, struct strbuf *b, struct error *e)
{
    x->csv = strbuf_take(b, NULL);
    return x->svg && x->csv ? 0 : error_set(e, ERR_MEMORY, "out of memory for the drawings");
}

/* Share of the tokens that chose each expert. */
static int add_map(struct report_drawings *d, const struct trace_report *r, int of, size_t n,
                   struct error *e)
{
    struct report_drawing *x = add(d, of, n, "load");
    int columns = r->trace->head.experts;
    double *values = mem_alloc((size_t)r->trace->head.layers * (size_t)columns, sizeof *values);
    struct strbuf b = {0};

    strbuf_puts(&b, "layer,expert,tokens,share\n");
    for (int l = 0; l < r->n_layers && values; l++)
        for (int i = 0; i < r->layers[l].experts; i++) {
            double share = r->layers[l].counts[i] / (double)r->trace->n;

            values[r->layers[l].layer * columns + i] = share;
            strbuf_printf(&b, "%d,%d,%.0f,%.17g\n", r->layers[l].layer, i, r->layers[l].counts[i],
                          share);
        }
    if (values)
        x->svg = plot_map("Share of the tokens that chose an expert, by layer", values, NULL,
                          r->trace->head.layers, columns);
    mem_free(values);
    return finish(x, &b, e);
}

static int add_curve(struct report_drawings *d, const struct trace_report *r, int of, size_t n,
                     const struct curve *c, struct error *e)
{
    struct report_drawing *x = add(d, of, n, c->name);
    struct plot_point *points = mem_alloc((size_t)r->n_layers, sizeof *points);
    struct strbuf b = {0};

    strbuf_printf(&b, "layer,%s\n", c->name);
    for (int l = 0; l < r->n_layers && points; l++) {
        points[l] = (struct plot_point){r->layers[l].layer, c->of(&r->layers[l])};
        strbuf_printf(&b, "%d,%.17g\n", r->layers[l].layer, points[l].y);
    }
    if (points)
        x->svg = plot_curve(c->title, "layer", c->unit, points, (size_t)r->n_layers);
    mem_free(points);
    return finish(x, &b, e);
}

static int add_overlap(struct report_drawings *d, const struct trace_comparison *c, struct error *e)
{
    struct report_drawing *x = add(d, -1, 2, "overlap");
    struct plot_point *points = mem_alloc((size_t)c->n_layers, sizeof *points);
    struct strbuf b = {0};

    strbuf_puts(&b, "layer,overlap,low,high\n");
    for (int l = 0; l < c->n_layers && points; l++) {
        const struct spanned *s = &c->layers[l].overlap;

        points[l] = (struct plot_point){c->layers[l].layer, 100 * s->value};
        strbuf_printf(&b, "%d,%.17g,%.17g,%.17g\n", c->layers[l].layer, 100 * s->value,
                      100 * s->low, 100 * s->high);
    }
    if (points)
        x->svg = plot_curve("Experts that both traces chose for a token", "layer", "%", points,
                            (size_t)c->n_layers);
    mem_free(points);
    return finish(x, &b, e);
}

int report_drawings_make(struct report_drawings *d, const struct trace_report *r, size_t n,
                         const struct trace_comparison *c, struct error *e)
{
    int rc = 0;

    *d = (struct report_drawings){0};
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = add_map(d, &r[i], (int)i, n, e);
        for (size_t k = 0; k < sizeof curves / sizeof *curves && rc == 0; k++)
            if (r[i].n_layers > 1 && (!curves[k].scores || r[i].trace->head.scores) &&
                (!curves[k].logprobs || r[i].trace->head.logprobs))
                rc = add_curve(d, &r[i], (int)i, n, &curves[k], e);
    }
    return rc == 0 && c && c->common && c->n_layers > 1 ? add_overlap(d, c, e) : rc;
}

void report_drawings_release(struct report_drawings *d)
{
    for (int i = 0; i < d->n; i++) {
        mem_free(d->items[i].svg);
        mem_free(d->items[i].csv);
    }
    *d = (struct report_drawings){0};
}

int report_drawings_write(const struct report_drawings *d, const char *folder, struct error *e)
{
    struct strbuf b = {0};
    int rc = file_make_folders(folder, e);

    for (int i = 0; i < 2 * d->n && rc == 0; i++) {
        const struct report_drawing *x = &d->items[i / 2];
        const char *text = i & 1 ? x->csv : x->svg;

        strbuf_clear(&b);
        strbuf_printf(&b, "%s/%s.%s", folder, x->name, i & 1 ? "csv" : "svg");
        rc = b.failed ? error_set(e, ERR_MEMORY, "out of memory for the drawings")
                      : file_replace(b.data, text, strlen(text), e);
    }
    strbuf_release(&b);
    return rc;
}
