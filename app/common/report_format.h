/* How a report is written down, in the order of the words of --bench-format: llama-bench's. */
#ifndef APP_COMMON_REPORT_FORMAT_H
#define APP_COMMON_REPORT_FORMAT_H

#include "engine/base/error.h"
#include "engine/base/series.h"

#include <stdio.h>

enum report_format { REPORT_MD, REPORT_CSV, REPORT_JSON, REPORT_JSONL, REPORT_SQL };

struct json_t;

/* o (taken; NULL: it could not be made) as a line, flags: of json_dumps. ERR_MEMORY. */
int report_json(FILE *f, struct json_t *o, size_t flags, struct error *e);
/* A cell of a table: "12.30 ± 0.40" with two decimals, of one sample "12.30 (1 run)". value: the
 * mean or the median of v. */
const char *report_spread(const struct series_figures *v, double value, char out[48]);

#endif
