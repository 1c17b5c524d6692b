/* --ablate: what every expert is worth on a text or on questions. Chunk by chunk (question by
 * question) everything is computed as it is and then with one expert off after the other, so that
 * each difference is one of pairs; a difference of means, its interval from resampled blocks of
 * neighbours, which are not independent. Main thread. */
#include "app/quality/quality.h"

#include "app/common/progress.h"
#include "app/common/report_format.h"
#include "app/common/signals.h"
#include "app/common/svg_plot.h"
#include "app/quality/choices.h"
#include "app/quality/log_probs.h"
#include "app/quality/score.h"
#include "app/setup/test_text.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/base/strbuf.h"
#include "engine/device/expert_edits.h"
#include "engine/model/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 512
#define BLOCK 32 /* tokens */
#define RESAMPLES 1000
#define SHOWN 20 /* rows of the table of all layers, from both ends */

bool ablate_wanted(const struct options *o)
{
    return o->ablate;
}

struct cell {
    int layer, expert;
    double *rise;  /* (blocks) sums of the values' rise */
    double chosen; /* rows of the unedited run that chose it */
    double loss, low, high;
    int right; /* questions answered rightly without it */
};

struct run {
    struct engine *g;
    struct choice_list *questions;              /* NULL: a text */
    int *ids, n, bos, context, units, per_unit; /* per_unit: blocks of a chunk or question */
    struct cell *cells;
    int n_cells, n_blocks;
    double *size;               /* (blocks) values */
    double *base, *now;         /* (context) values of the unit */
    int n_values, right, asked; /* values so far of the unit; questions */
    double sum;                 /* of all values, unedited */
    size_t count;
    const int *chunk;
    double rows; /* that the unedited run routed */
};

/* ---- computing ---- */

static int add_row(void *ctx, int at, const float *logits, struct error *e)
{
    struct run *r = ctx;

    r->now[r->n_values++] = log_probs_surprise(logits, engine_info(r->g)->model->hp.n_vocab,
                                               r->chunk[at + 1]);
    return 0;
}

/* Values of a chunk or question into now. */
static int compute(struct run *r, int unit, bool *right, struct error *e)
{
    int kept, rc;

    r->n_values = 0;
    if (r->questions) {
        r->n_values = 1;
        return choices_ask(r->questions, unit, r->g, r->bos, r->now, right, e);
    }
    r->chunk = r->ids + unit * r->context;
    kept = r->ids[unit * r->context];
    if (r->bos >= 0)
        r->ids[unit * r->context] = r->bos;
    rc = score_text(r->g, r->chunk, r->context, r->context / 2, add_row, r, e);
    r->ids[unit * r->context] = kept;
    return rc;
}

static void count_chosen(void *ctx, const struct routing *routed)
{
    struct run *r = ctx;

    r->rows += routed->rows;
    for (int c = 0; c < r->n_cells; c++) {
        const int *x = routed->experts + (size_t)r->cells[c].layer * routed->layer_stride;

        for (int i = 0; i < routed->rows * routed->used; i++)
            r->cells[c].chosen += x[i] == r->cells[c].expert;
    }
}

static int switch_off(struct run *r, const struct cell *c, struct error *e)
{
    struct expert_edits *x;
    char line[48];
    const char *lines = line;
    int rc;

    snprintf(line, sizeof line, "off L%d/E%d", c->layer, c->expert);
    rc = expert_edits_read(&x, NULL, &engine_info(r->g)->model->hp, &lines, 1, e);
    if (rc == 0)
        rc = engine_session_edits_set(engine_session(r->g), x, e);
    expert_edits_free(x);
    return rc < 0 ? rc : 0;
}

static int as_it_is(struct run *r, int unit, struct error *e)
{
    bool right = false;
    int rc = engine_session_edits_set(engine_session(r->g), NULL, e);

    if (rc < 0)
        return rc;
    engine_observe(r->g, count_chosen, r);
    rc = compute(r, unit, &right, e);
    engine_observe(r->g, NULL, NULL);
    memcpy(r->base, r->now, (size_t)r->n_values * sizeof *r->now);
    for (int i = 0; i < r->n_values && rc == 0; i++) {
        r->size[unit * r->per_unit + i / BLOCK]++;
        r->sum += r->now[i];
    }
    r->count += (size_t)r->n_values;
    r->right += right;
    return rc;
}

static int without(struct run *r, int unit, struct cell *c, struct error *e)
{
    bool right = false;
    int rc = switch_off(r, c, e);

    if (rc == 0)
        rc = compute(r, unit, &right, e);
    for (int i = 0; i < r->n_values && rc == 0; i++)
        c->rise[unit * r->per_unit + i / BLOCK] += r->now[i] - r->base[i];
    c->right += right;
    return rc;
}

static int compute_all(struct run *r, struct error *e)
{
    double done = 0, all = (double)r->units * (r->n_cells + 1);
    struct progress p;
    int rc = 0;

    progress_begin(&p, "ablation");
    for (int unit = 0; unit < r->units && rc == 0; unit++) {
        progress_draw(&p, done++, all, NULL);
        rc = as_it_is(r, unit, e);
        for (int c = 0; c < r->n_cells && rc == 0; c++) {
            progress_draw(&p, done++, all, NULL);
            rc = without(r, unit, &r->cells[c], e);
        }
    }
    progress_end(&p);
    return rc;
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Linearly interpolated. */
static double quantile(const double *sorted, int n, double part)
{
    double at = part * (n - 1);
    int i = (int)at;

    return i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

/* The same blocks for every expert; tests/tools/ablation.py draws them again. */
static void figure(const struct run *r, struct cell *c)
{
    double means[RESAMPLES], sum = 0;
    uint64_t random = 1;

    for (int i = 0; i < r->n_blocks; i++)
        sum += c->rise[i];
    c->loss = sum / (double)r->count;
    for (int k = 0; k < RESAMPLES; k++) {
        double rise = 0, size = 0;

        for (int i = 0; i < r->n_blocks; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            rise += c->rise[(random >> 33) % (uint64_t)r->n_blocks];
            size += r->size[(random >> 33) % (uint64_t)r->n_blocks];
        }
        means[k] = size > 0 ? rise / size : 0;
    }
    qsort(means, RESAMPLES, sizeof *means, ascending);
    c->low = quantile(means, RESAMPLES, 0.025);
    c->high = quantile(means, RESAMPLES, 0.975);
}

static int by_loss(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;

    return x->loss != y->loss     ? (x->loss < y->loss) - (x->loss > y->loss)
           : x->layer != y->layer ? x->layer - y->layer
                                  : x->expert - y->expert;
}

/* ---- output ---- */

static void print_cell(FILE *f, const struct run *r, const struct cell *c)
{
    fprintf(f, "%5d %6d  %5.1f %%  %+9.5f  [%+.5f, %+.5f]", c->layer, c->expert,
            r->rows > 0 ? 100 * c->chosen / r->rows : 0, c->loss, c->low, c->high);
    if (r->questions)
        fprintf(f, "  %d right\n", c->right);
    else
        fprintf(f, "  %.4f\n", exp(r->sum / (double)r->count + c->loss));
}

static void print(FILE *f, const struct run *r)
{
    int clear = 0, shown = r->n_cells > 3 * SHOWN ? SHOWN : r->n_cells;

    for (int i = 0; i < r->n_cells; i++)
        clear += r->cells[i].low > 0 || r->cells[i].high < 0;
    if (r->questions)
        fprintf(f, "as it is: %d of %d questions right, -ln p of the right option %.5f\n", r->right,
                r->units, r->sum / (double)r->count);
    else
        fprintf(f, "as it is: perplexity %.4f, %zu tokens of %d chunks of %d counted\n",
                exp(r->sum / (double)r->count), r->count, r->units, r->context);
    fprintf(f,
            "%d experts off in turn; the 95 %% intervals of %d exclude 0, by chance about "
            "%.0f\n",
            r->n_cells, clear, 0.05 * r->n_cells);
    fprintf(f, "layer expert   chosen  rise of -ln p, interval           %s\n",
            r->questions ? "questions" : "perplexity");
    for (int i = 0; i < r->n_cells; i++) {
        if (i == shown && i < r->n_cells - shown) {
            fprintf(f, "  … %d more (--report-json has all)\n", r->n_cells - 2 * shown);
            i = r->n_cells - shown;
        }
        print_cell(f, r, &r->cells[i]);
    }
}

static json_t *numbers(const double *v, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_real(v[i]));
    return list;
}

static int put_json(FILE *f, const void *ctx, struct error *e)
{
    const struct run *r = ctx;
    json_t *cells = json_array();

    for (int i = 0; i < r->n_cells; i++) {
        const struct cell *c = &r->cells[i];
        json_t *o = json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:o}", "layer", c->layer, "expert",
                              c->expert, "chosen", r->rows > 0 ? c->chosen / r->rows : 0.0, "loss",
                              c->loss, "low", c->low, "high", c->high, "blocks",
                              numbers(c->rise, r->n_blocks));

        if (r->questions)
            json_object_set_new(o, "right", json_integer(c->right));
        json_array_append_new(cells, o);
    }
    return report_json(f,
                       json_pack("{s:s, s:s, s:f, s:I, s:i, s:i, s:i, s:o, s:o}", "model",
                                 engine_info(r->g)->model->name, "of",
                                 r->questions ? "choices" : "perplexity", "base",
                                 r->sum / (double)r->count, "count", (json_int_t)r->count, "units",
                                 r->units, "right", r->right, "resamples", RESAMPLES, "sizes",
                                 numbers(r->size, r->n_blocks), "cells", cells),
                       JSON_INDENT(1) | JSON_REAL_PRECISION(17), e);
}

/* Layers down, experts across; losses below 0 count as 0. */
static char *map_of(const struct run *r)
{
    const struct hparams *hp = &engine_info(r->g)->model->hp;
    double *values = mem_alloc((size_t)hp->n_layers * (size_t)hp->n_experts, sizeof *values);
    char *svg;

    for (int i = 0; i < r->n_cells && values; i++)
        values[r->cells[i].layer * hp->n_experts + r->cells[i].expert] = fmax(0, r->cells[i].loss);
    svg = values ? plot_map("Rise of -ln p when an expert is off, by layer", values, NULL,
                            hp->n_layers, hp->n_experts)
                 : NULL;
    mem_free(values);
    return svg;
}

static int put_page(const char *path, const struct run *r, struct error *e)
{
    struct strbuf b = {0};
    char *svg = map_of(r), *text = NULL;
    size_t n = strlen(path), size = 0;
    FILE *f;
    int rc;

    if (n > 4 && strcmp(path + n - 4, ".svg") == 0) {
        rc = plot_write(path, &svg, 1, e);
        mem_free(svg);
        return rc;
    }
    f = open_memstream(&text, &size);
    if (f) {
        print(f, r);
        fclose(f);
    }
    strbuf_puts(&b, "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n<title>moetop: what "
                    "experts are worth</title>\n<style>body{font:16px/1.5 sans-serif;max-width:"
                    "70rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%;height:auto}"
                    "</style>\n<h1>What each expert is worth</h1>\n");
    strbuf_puts(&b, svg ? svg : "");
    strbuf_puts(&b, "\n<pre>"); /* figures and words of ours: nothing to be escaped */
    strbuf_puts(&b, text ? text : "");
    strbuf_puts(&b, "</pre>\n<p>Formulas: moetop-lab(7).</p>\n</html>\n");
    rc = b.failed || !text || !svg ? error_set(e, ERR_MEMORY, "out of memory for the page")
                                   : file_replace(path, b.data, b.len, e);
    free(text); /* the C library's */
    mem_free(svg);
    strbuf_release(&b);
    return rc;
}

static int put(const struct options *o, const struct run *r, struct error *e)
{
    bool only_json = o->report_json && !strcmp(o->report_json, "-");
    int rc = 0;

    if (only_json)
        rc = put_json(stdout, r, e);
    else
        print(stdout, r);
    if (rc == 0 && fflush(stdout))
        rc = output_failed("the ablation", errno, e);
    if (rc == 0 && o->report_json && !only_json)
        rc = report_file(o->report_json, put_json, r, e);
    return rc == 0 && o->report_html ? put_page(o->report_html, r, e) : rc;
}

/* ---- set up ---- */

/* -1: all layers. */
static int layer_of(const char *text, const struct hparams *hp, int *layer, struct error *e)
{
    const char *p = text + 6;

    *layer = -1;
    if (strcmp(text, "all") == 0)
        return 0;
    if (strncmp(text, "layer:", 6) != 0 || size_digits(&p, 1 << 20, layer) < 0 || *p)
        return error_set(e, ERR_USAGE, "--ablate %s: layer:N or all is expected", text);
    if (*layer >= hp->n_layers || !hparams_layer(hp, *layer)->ffn.used)
        return error_set(e, ERR_USAGE, "--ablate %s: %s", text,
                         *layer >= hp->n_layers ? "the model has no such layer"
                                                : "this layer has no router");
    return 0;
}

static int make_cells(struct run *r, const char *which, struct error *e)
{
    const struct hparams *hp = &engine_info(r->g)->model->hp;
    int only, rc = layer_of(which, hp, &only, e);

    r->n_blocks = r->units * r->per_unit;
    for (int l = 0; l < hp->n_layers && rc == 0; l++)
        for (int x = 0; x < hparams_layer(hp, l)->ffn.experts && (only < 0 || only == l); x++) {
            if (!MEM_FIT(r->cells, (size_t)r->n_cells + 1))
                return error_set(e, ERR_MEMORY, "out of memory for the ablation");
            r->cells[r->n_cells] = (struct cell){.layer = l, .expert = x};
            r->cells[r->n_cells].rise = mem_alloc((size_t)r->n_blocks, sizeof(double));
            if (!r->cells[r->n_cells++].rise)
                return error_set(e, ERR_MEMORY, "out of memory for the ablation");
        }
    if (rc == 0 && !r->n_cells)
        return error_set(e, ERR_USAGE, "--ablate: the model has no experts to choose from");
    r->size = mem_alloc((size_t)r->n_blocks, sizeof *r->size);
    r->base = mem_alloc((size_t)r->context, sizeof *r->base);
    r->now = mem_alloc((size_t)r->context, sizeof *r->now);
    if (rc == 0 && (!r->size || !r->base || !r->now))
        return error_set(e, ERR_MEMORY, "out of memory for the ablation");
    return rc;
}

static int open_text(struct run *r, const struct options *o, struct error *e)
{
    int rc = score_file(r->g, o->perplexity, o->parse_special, &r->bos, &r->ids, &r->n, e);

    r->context = engine_info(r->g)->context;
    r->units = r->n / r->context;
    r->per_unit = (r->context - r->context / 2 - 1 + BLOCK - 1) / BLOCK;
    return rc < 0 ? rc : score_chunks(o, o->perplexity, r->n, r->context, &r->units, e);
}

static int open_questions(struct run *r, const struct options *o, struct error *e)
{
    char *text = NULL;
    size_t size;
    int rc = test_text_read(o->choices, &text, &size, e);

    if (rc == 0 && (rc = score_bos(r->g, &r->bos, e)) == 0 &&
        (rc = choices_read(&r->questions, text, size, e)) < 0)
        error_prefix(e, "%s", o->choices);
    mem_free(text);
    if (rc < 0)
        return rc;
    r->units = choices_count(r->questions);
    r->context = r->per_unit = 1;
    return 0;
}

int ablate_run(struct options *o, struct error *e)
{
    struct run r = {0};
    int rc;

    if (!o->perplexity == !o->choices || o->ppl_stride)
        return error_set(e, ERR_USAGE, "--ablate takes --perplexity FILE or --choices FILE%s",
                         o->ppl_stride ? ", not --ppl-stride" : "");
    rc = score_open(o, o->perplexity ? CHUNK : 0, &r.g, e);
    if (rc == 0)
        rc = o->perplexity ? open_text(&r, o, e) : open_questions(&r, o, e);
    if (rc == 0 && (rc = make_cells(&r, o->ablate, e)) == 0)
        rc = compute_all(&r, e);
    for (int i = 0; i < r.n_cells && rc == 0; i++)
        figure(&r, &r.cells[i]);
    if (rc == 0) {
        qsort(r.cells, (size_t)r.n_cells, sizeof *r.cells, by_loss);
        rc = put(o, &r, e);
    }
    for (int i = 0; i < r.n_cells; i++)
        mem_free(r.cells[i].rise);
    mem_free(r.cells);
    mem_free(r.size);
    mem_free(r.base);
    mem_free(r.now);
    mem_free(r.ids);
    choices_free(r.questions);
    engine_close(r.g);
    return rc;
}
