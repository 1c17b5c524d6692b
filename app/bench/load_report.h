/* A load's results as a table. Main thread. */
#ifndef APP_BENCH_LOAD_REPORT_H
#define APP_BENCH_LOAD_REPORT_H

#include "app/bench/load.h"
#include "app/common/report_format.h"

#include <stdio.h>

/* ERR_USAGE: an unsupported format (sql); ERR_MEMORY. */
int load_report_write(FILE *f, enum report_format format, const struct load_result *r, size_t n,
                      struct error *e);

#endif
