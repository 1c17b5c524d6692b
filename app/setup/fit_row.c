/* See fit_row.h. The model is inspected by the same code that loads it. */
#include "app/setup/fit_row.h"

#include "app/setup/fit_remedy.h"
#include "engine/base/membw.h"
#include "engine/file/direct_rate.h"
#include "engine/model/expert_reader.h"
#include "engine/model/model.h"
#include "engine/run/report/roofline.h"

#include <stdio.h>
#include <string.h>

#define DISK_MS 300

/* Decided from earlier measurements of other sizes if possible, as measuring takes time. */
static bool is_cached(struct fit_look *l, uint64_t bytes)
{
    if (bytes > l->cached && bytes < l->uncached) {
        if (membw_cached(bytes, l->threads))
            l->cached = bytes;
        else
            l->uncached = bytes;
    }
    return bytes <= l->cached;
}

/* The bytes that decode reads with the settings of c, and the rate that the memory bandwidth
 * allows. */
static void expect(struct fit_look *l, struct fit_row *r, const struct engine_config *c,
                   const struct model *m)
{
    struct roofline line;

    roofline_init(&line, m, c->kv_k, c->kv_v);
    r->token_bytes = roofline_token_bytes(&line,
                                          r->context < FIT_ROW_DEPTH ? r->context : FIT_ROW_DEPTH);
    r->all_weights = line.all_weights;
    r->in_cache = is_cached(l, line.all_weights);
    if (!r->in_cache && r->token_bytes)
        r->rate = l->bandwidth / (double)r->token_bytes;
}

/* With experts on disk a token also waits for missing experts: their share equals the share of
 * experts that are not in memory. */
static void expect_paged(struct fit_look *l, struct fit_row *r, const struct engine_config *c,
                         int context)
{
    struct model_footprint weights;
    struct roofline line;
    struct error ignored;
    struct model *m;

    if (fit_inspect(c, &m, &weights, &ignored) < 0)
        return;
    r->context = context;
    r->disk = direct_rate(m->file, EXPERT_READERS, DISK_MS);
    roofline_init(&line, m, c->kv_k, c->kv_v);
    r->token_bytes = roofline_token_bytes(&line,
                                          r->context < FIT_ROW_DEPTH ? r->context : FIT_ROW_DEPTH);
    r->all_weights = line.all_weights;
    if (r->disk > 0) {
        double held = (double)weights.cache / (double)weights.on_disk,
               missed = held < 1 ? (double)line.experts * (1 - held) : 0;

        r->rate = 1 / ((double)r->token_bytes / l->bandwidth + missed / r->disk);
    }
    model_free(m);
}

static void look_for_remedy(struct fit_look *l, struct fit_row *r,
                            const struct engine_config *asked)
{
    struct engine_config c = *asked, on_disk = *asked;
    struct fit paged = r->fit;
    struct model_footprint weights;
    struct error ignored;
    struct model *m;

    if (!asked->expert_cache)
        fit_page_smaller(&on_disk, &paged, r->paged, sizeof r->paged);
    fit_suggest(asked, &r->fit, r->remedy, sizeof r->remedy, &c);
    if (!r->remedy[0]) {
        if (r->paged[0])
            expect_paged(l, r, &on_disk, paged.context);
        r->smaller = fit_smaller(asked, &r->fit, &r->smaller_bytes);
        return;
    }
    if (fit_inspect(&c, &m, &weights, &ignored) < 0)
        return;
    r->context = c.context ? c.context
                           : fit_context(&c, m, &weights, m->hp.context_max, l->available);
    expect(l, r, &c, m);
    model_free(m);
}

/* The CPU keeps all weights: a device's memory does not make a model fit, but may hold some of them
 * too. */
static void look_at_device(const struct fit_look *l, struct fit_row *r,
                           const struct engine_config *c)
{
    struct error ignored;
    struct fit placed = r->fit;

    if (l->place && fit_measure_device(c, l->place, l->prompts, &placed, &ignored) == 0)
        r->placed = placed;
}

static int look(struct fit_look *l, struct fit_row *r)
{
    struct engine_config c = *l->config;
    struct model_footprint weights;
    struct model *m = NULL;
    int rc;

    c.model_path = r->path;
    if ((rc = fit_measure(&c, &r->fit, &r->why)) < 0 ||
        (rc = fit_inspect(&c, &m, &weights, &r->why)) < 0)
        return rc;
    r->fit.available = l->available; /* the same value for all models */
    snprintf(r->family, sizeof r->family, "%s", m->family);
    r->file_bytes = weight_file_bytes(m->file);
    r->parameters = m->n_params;
    if (fit_fits(&r->fit)) {
        r->context = c.context ? r->fit.context
                               : fit_context(&c, m, &weights, r->fit.context_max, l->available);
        expect(l, r, &c, m);
        model_free(m);
        look_at_device(l, r, &c);
    } else {
        model_free(m);
        look_for_remedy(l, r, &c);
    }
    return 0;
}

void fit_row_look(struct fit_look *l, const char *path, struct fit_row *row)
{
    *row = (struct fit_row){.path = path};
    look(l, row);
}
