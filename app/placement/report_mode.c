/* See report_mode.h. */
#include "app/placement/report_mode.h"

#include "app/common/report_format.h"
#include "app/lab/report.h"
#include "app/lab/report_drawings.h"
#include "app/placement/consequences.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool routing_report_wanted(const struct options *o)
{
    return o->routing_report.n > 0;
}

static double count_of(const struct trace_report *r, int layer, int expert)
{
    for (int l = 0; l < r->n_layers; l++)
        if (r->layers[l].layer == layer)
            return expert < r->layers[l].experts ? r->layers[l].counts[expert] : 0;
    return 0;
}

/* NumPy's format 1.0 (numpy.lib.format): (layers with a router, experts) counts, which the
 * functions of DeepSeek's and vLLM's load balancers take as `weight`. */
static int write_npy(const char *path, const struct trace_report *r, int experts, struct error *e)
{
    struct strbuf b = {0};
    char head[128];
    int n = snprintf(head, sizeof head,
                     "{'descr': '<i8', 'fortran_order': False, 'shape': (%d, %d), }", r->n_layers,
                     experts),
        rc;
    uint16_t size = 118; /* with the ten bytes before it a multiple of 64, as it must be */

    strbuf_put(&b, "\x93NUMPY\x01\x00", 8);
    strbuf_put(&b, (const char *)&size, 2);
    strbuf_puts(&b, head);
    while (n++ < size - 1)
        strbuf_putc(&b, ' ');
    strbuf_putc(&b, '\n');
    for (int l = 0; l < r->n_layers; l++)
        for (int x = 0; x < experts; x++) {
            int64_t v = (int64_t)count_of(r, r->layers[l].layer, x);

            strbuf_put(&b, (const char *)&v, sizeof v);
        }
    rc = b.failed ? error_set(e, ERR_MEMORY, "out of memory for the counts")
                  : file_replace(path, b.data, b.len, e);
    strbuf_release(&b);
    return rc;
}

/* .npy, or what SGLang's --init-expert-location reads: logical_count, (layers, experts), of every
 * layer of the model (python/sglang/srt/eplb/expert_location.py). Experts are those that routers
 * choose from: shared ones are none of theirs. */
static int write_counts(const char *path, const struct trace_report *r, struct error *e)
{
    const char *dot = strrchr(path, '.');
    json_t *layers;
    int experts = 0, rc;

    for (int l = 0; l < r->n_layers; l++)
        experts = r->layers[l].experts > experts ? r->layers[l].experts : experts;
    if (dot && strcmp(dot, ".npy") == 0) {
        rc = write_npy(path, r, experts, e);
        return rc < 0 ? error_prefix(e, "--routing-counts") : 0;
    }
    layers = json_array();
    for (int i = 0; i < r->trace->head.layers; i++) {
        json_t *row = json_array();

        for (int x = 0; x < experts; x++)
            json_array_append_new(row, json_integer((json_int_t)count_of(r, i, x)));
        json_array_append_new(layers, row);
    }
    rc = json_write_file(json_pack("{s:o}", "logical_count", layers), path, JSON_COMPACT, e);
    return rc < 0 ? error_prefix(e, "--routing-counts") : 0;
}

struct figures {
    const struct trace_report *reports;
    size_t n;
    const struct trace_comparison *comparison;
};

static int put_json(FILE *f, const void *ctx, struct error *e)
{
    const struct figures *x = ctx;
    json_t *o = report_figures_json(x->reports, x->n, x->comparison);
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;

    json_decref(o);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for the report");
    fprintf(f, "%s\n", text);
    free(text); /* jansson's */
    return 0;
}

static int put_drawings(const struct options *o, const struct figures *x, struct error *e)
{
    struct report_drawings d;
    int rc;

    if (!o->report_html && !o->report_figures)
        return 0;
    rc = report_drawings_make(&d, x->reports, x->n, x->comparison, e);
    if (rc == 0 && o->report_html)
        rc = report_page_write(o->report_html, x->reports, x->n, x->comparison, &d, e);
    if (rc == 0 && o->report_figures)
        rc = report_drawings_write(&d, o->report_figures, e);
    report_drawings_release(&d);
    return rc;
}

static int put(const struct options *o, const struct figures *x, struct error *e)
{
    bool only_json = o->report_json && !strcmp(o->report_json, "-");
    int rc = 0;

    if (only_json)
        rc = put_json(stdout, x, e);
    else
        report_text(stdout, x->reports, x->n, x->comparison);
    if (rc == 0 && fflush(stdout))
        rc = error_set(e, ERR_IO, "the report cannot be written: %s", strerror(errno));
    if (rc == 0 && o->report_json && !only_json)
        rc = report_file(o->report_json, put_json, x, e);
    if (rc == 0)
        rc = put_drawings(o, x, e);
    if (rc == 0 && o->routing_counts)
        rc = write_counts(o->routing_counts, x->reports, e);
    return rc;
}

int routing_report_run(struct options *o, struct error *e)
{
    enum { MOST = 2 };
    struct trace *traces[MOST] = {0};
    struct trace_report reports[MOST] = {0};
    struct trace_comparison comparison = {0};
    size_t n = o->routing_report.n;
    int rc = 0;

    if (n > MOST)
        return error_set(e, ERR_USAGE, "--routing-report takes a trace, or two to be compared");
    if (o->routing_counts && n > 1)
        return error_set(e, ERR_USAGE, "--routing-counts is of one --routing-report");
    for (size_t i = 0; i < n && rc == 0; i++)
        if ((rc = trace_open(&traces[i], o->routing_report.items[i], e)) == 0)
            if ((rc = trace_report_make(&reports[i], traces[i], e)) == 0)
                rc = consequences_make(&reports[i].placement, o, &reports[i], e);
    if (rc == 0 && n > 1)
        rc = trace_compare(&comparison, &reports[0], &reports[1], e);
    if (rc == 0)
        rc = put(o, &(struct figures){reports, n, n > 1 ? &comparison : NULL}, e);
    trace_comparison_release(&comparison);
    for (size_t i = 0; i < n; i++) {
        trace_report_release(&reports[i]);
        trace_close(traces[i]);
    }
    return rc;
}
