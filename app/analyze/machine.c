/* See machine.h. */
#include "app/analyze/machine.h"

#include "app/setup/engine_options.h"
#include "engine/base/membw.h"
#include "engine/base/topology.h"
#include "engine/model/model.h"
#include "engine/run/report/roofline.h"

#include <stdio.h>
#include <string.h>

#define METER_MS 200

static int expect(struct analysis_machine *a, const struct engine_config *c)
{
    struct model_footprint weights;
    struct roofline line;
    struct model *m;
    int rc = fit_inspect(c, &m, &weights, &a->why);

    if (rc < 0)
        return rc;
    roofline_init(&line, m, c->kv_k, c->kv_v);
    a->token_bytes = roofline_token_bytes(&line, a->fit.context < ANALYSIS_DEPTH ? a->fit.context
                                                                                 : ANALYSIS_DEPTH);
    a->in_cache = membw_cached(line.all_weights, a->threads);
    if (!a->in_cache && a->token_bytes)
        a->rate = a->bandwidth / (double)a->token_bytes;
    model_free(m);
    return 0;
}

/* The first plan for which a device is found determines the device. */
static void try_plan(struct analysis_machine *a, const struct engine_config *c, const char *spec)
{
    struct analysis_plan *plan = &a->plans[a->n_plans];
    struct fit placed = a->fit;
    struct error ignored;

    if (fit_measure_device(c, spec, NULL, &placed, &ignored) < 0 || !placed.n_on)
        return;
    *plan = (struct analysis_plan){.spec = spec, .bytes = placed.on[0].bytes};
    plan->fits = fit_fits_devices(&placed) && (!placed.on[0].shares || fit_fits(&placed));
    memcpy(plan->note, placed.device_note, sizeof plan->note);
    memcpy(a->device, placed.on[0].name, sizeof a->device);
    a->device_memory = placed.on[0].memory;
    a->device_shares = placed.on[0].shares;
    a->n_plans++;
}

int analysis_measure(struct analysis_machine *a, const struct options *o, const char *path,
                     struct error *e)
{
    static const char *const specs[ANALYSIS_PLANS] = {"gpu", "attention-gpu", "experts-gpu", "hot"};
    struct engine_setup s;
    int rc = engine_setup_init(o, &s, e);

    if (rc < 0)
        return rc;
    *a = (struct analysis_machine){.threads = o->threads > 0 ? o->threads
                                                             : topology_default_threads()};
    s.config.model_path = path;
    a->available = fit_available();
    a->bandwidth = membw_read(NULL, 0, a->threads, METER_MS);
    rc = fit_measure(&s.config, &a->fit, &a->why);
    if (rc == 0)
        rc = expect(a, &s.config);
    for (int i = 0; i < ANALYSIS_PLANS && rc == 0; i++)
        try_plan(a, &s.config, specs[i]);
    engine_setup_release(&s);
    return 0;
}
