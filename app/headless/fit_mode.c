/* --fit: the table, and whether it fits. */
#include "app/headless/fit_mode.h"

#include "app/headless/fit_list.h"
#include "app/setup/engine_options.h"
#include "app/setup/fit_page.h"
#include "app/setup/fit_remedy.h"
#include "app/setup/fit_layers.h"
#include "engine/model/model.h"

#include <stdio.h>
#include <string.h>

bool fit_wanted(const struct options *o)
{
    return o->fit;
}

/* First the layers of the model, which can be printed even for unsupported models. */
static int print_layers(const struct engine_config *c, struct error *e)
{
    struct model *m;
    int rc = model_describe(&m, c->model_path, c->overrides, e);

    if (rc < 0)
        return rc;
    printf("%s: %s%s%s, %d layers, width %d, vocabulary %d\n", m->name, m->family,
           m->packing_method[0] ? ", packed by " : "", m->packing_method, m->hp.n_layers,
           m->hp.hidden, m->hp.n_vocab);
    rc = fit_layers_print(&m->hp, c->kv_k, c->kv_v, stdout, e);
    model_free(m);
    return rc;
}

static bool placed(const char *place, const char *none)
{
    return place && *place && strcmp(place, none);
}

int fit_run(struct options *o, struct error *e)
{
    struct engine_setup s;
    struct fit f;
    bool table = !o->report_json || strcmp(o->report_json, "-");
    char line[300];
    bool paged = false;
    int rc;

    if (fit_list_wanted(o) || !table)
        return fit_list_run(o, table, e);
    if (o->report_json && (rc = fit_list_run(o, false, e)) < 0)
        return rc;
    /* The table is the result here, so the refusal of loading must not come first. */
    if ((rc = engine_setup_init(o, &s, e)) < 0)
        return rc;
    rc = print_layers(&s.config, e);
    if (rc == 0)
        rc = fit_measure(&s.config, &f, e);
    if (rc == 0 && (placed(o->place, "cpu") || placed(o->place_prompt, "same")))
        rc = fit_measure_device(&s.config, placed(o->place, "cpu") ? o->place : "cpu",
                                placed(o->place_prompt, "same") ? o->place_prompt : NULL, &f, e);
    if (rc == 0) {
        if (s.page_auto && !fit_fits(&f) && !o->place)
            paged = fit_page(&s.config, &f, line, sizeof line) == 1;
        fit_print(&f, stdout);
        if (paged)
            printf("It fits so: %s.\n", line);
        else if (fit_fits(&f))
            printf("It fits.\n");
        else
            rc = fit_refuse(&s.config, &f, e);
    }
    engine_setup_release(&s);
    return rc;
}
