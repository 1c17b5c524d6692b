/* The mode --routing-report. Main thread; needs a model for the consequences of placement alone. */
#ifndef APP_PLACEMENT_REPORT_MODE_H
#define APP_PLACEMENT_REPORT_MODE_H

#include "app/options/options.h"

bool routing_report_wanted(const struct options *o);
int routing_report_run(struct options *o, struct error *e);

#endif
