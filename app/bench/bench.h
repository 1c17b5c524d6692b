/* --bench: speed measurements. Main thread. */
#ifndef APP_BENCH_BENCH_H
#define APP_BENCH_BENCH_H

#include "app/options/options.h"

int bench_mode_run(struct options *o, struct error *e);

#endif
