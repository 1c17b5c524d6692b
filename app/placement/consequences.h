/* What a trace's routing means for placement here: tokens a second by the engine's cost model
 * (engine/placement/planner.h) with so many experts a layer on a device, or in an expert cache. */
#ifndef APP_PLACEMENT_CONSEQUENCES_H
#define APP_PLACEMENT_CONSEQUENCES_H

#include "app/lab/report.h"
#include "app/options/options.h"

/* Opens the model that -m names and measures what its jobs cost, some tenths of a second a device.
 * Without -m, or without a device, p->none says why there are no figures. ERR_INPUT: the trace is
 * of another model; errors of opening. */
int consequences_make(struct report_placement *p, const struct options *o,
                      const struct trace_report *r, struct error *e);

#endif
