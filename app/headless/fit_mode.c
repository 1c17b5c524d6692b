/* --fit: the table, and whether it fits. */
#include "app/headless/fit_mode.h"

#include "app/setup/engine_options.h"
#include "app/setup/fit.h"

#include <stdio.h>
#include <string.h>

bool fit_wanted(const struct options *o)
{
    return o->fit;
}

int fit_run(struct options *o, struct error *e)
{
    struct engine_setup s;
    struct fit f;
    int rc;

    /* The table is the answer here, so loading's own refusal must not come first. */
    if ((rc = engine_setup_init(o, &s, e)) < 0)
        return rc;
    rc = fit_measure(&s.config, &f, e);
    if (rc == 0 && o->place && *o->place && strcmp(o->place, "cpu"))
        rc = fit_measure_device(&s.config, o->place, &f, e);
    if (rc == 0) {
        fit_print(&f, stdout);
        if (fit_fits(&f))
            printf("It fits.\n");
        else
            rc = fit_refuse(&s.config, &f, e);
    }
    engine_setup_release(&s);
    return rc;
}
