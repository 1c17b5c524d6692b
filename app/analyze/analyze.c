/* See analyze.h. */
#include "app/analyze/analyze.h"

#include "app/analyze/report.h"
#include "app/headless/fit_list.h"
#include "app/setup/engine_options.h"
#include "engine/base/mem.h"

#include <string.h>

#define CONTEXT 4096 /* without -c */

bool analyze_wanted(const struct options *o)
{
    return o->analyze && *o->analyze;
}

/* A model that is refused, by its tensors. Otherwise the refusal stays in e. */
static int by_tensors(const struct options *o, const struct engine_setup *s, bool table,
                      struct error *e)
{
    struct analysis_by_tensors *by = mem_alloc(1, sizeof *by);
    struct error other = {0};
    int rc = ERR_MODEL;

    if (by && analysis_count_tensors(by, o->analyze, s->config.overrides, &other) == 0) {
        if (table)
            analysis_print_tensors(by, e->text, stdout);
        rc = fit_report_write(o, o->report_json ? analysis_tensors_json(by, e->text) : NULL, e);
    }
    mem_free(by);
    return rc;
}

int analyze_run(struct options *o, struct error *e)
{
    bool table = !o->report_json || strcmp(o->report_json, "-");
    struct analysis *a = mem_alloc(1, sizeof *a); /* too large for the stack */
    struct engine_setup s;
    struct model *m = NULL;
    int rc;

    if (!a)
        return error_set(e, ERR_MEMORY, "out of memory for the analysis");
    if ((rc = engine_setup_init(o, &s, e)) < 0) {
        mem_free(a);
        return rc;
    }
    a->context = o->ctx_size > 0 ? o->ctx_size : CONTEXT;
    rc = model_describe(&m, o->analyze, s.config.overrides, e);
    if (rc == ERR_MODEL) {
        rc = by_tensors(o, &s, table, e);
        engine_setup_release(&s);
        mem_free(a);
        return rc;
    }
    if (rc == 0)
        rc = analysis_count(&a->count, m, o->analyze, e);
    if (rc == 0)
        rc = analysis_measure(&a->machine, o, o->analyze, e);
    if (rc == 0) {
        a->model = m;
        analysis_hints(&a->hints, &a->count, &m->hp, &a->machine);
        if (table)
            analysis_print(a, stdout);
        rc = fit_report_write(o, o->report_json ? analysis_json(a) : NULL, e);
    }
    model_free(m);
    engine_setup_release(&s);
    mem_free(a);
    return rc;
}
