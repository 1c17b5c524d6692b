/* --fit of several files or of folders: which models fit here. Main thread. */
#ifndef APP_HEADLESS_FIT_LIST_H
#define APP_HEADLESS_FIT_LIST_H

#include "app/options/options.h"

#include <jansson.h>

/* More than one model is given: --fit followed by names, or -m with a folder of models. */
bool fit_list_wanted(const struct options *o);
/* The table, if requested, and the report; for one model too. ERR_MODEL: there is none. Models that
 * cannot be read, or do not fit, are rows. */
int fit_list_run(struct options *o, bool table, struct error *e);
/* Writes a report (taken; NULL: ERR_MEMORY) to --report-json, if given. ERR_IO. */
int fit_report_write(const struct options *o, json_t *report, struct error *e);

#endif
