/* --parallel: the number of concurrent sessions. Any thread; the options are checked when they are
 * parsed. */
#ifndef APP_SETUP_PARALLEL_H
#define APP_SETUP_PARALLEL_H

#include "app/options/options.h"

#define PARALLEL_MOST 256
#define PARALLEL_SERVE 4 /* default for --serve */
#define PARALLEL_EMBED 8 /* likewise for --embed */

/* The option's numbers: fills at most max, returns how many there are; 1 if none was given. Invalid
 * or out-of-range numbers are skipped. */
int parallel_numbers(const struct options *o, int *out, int max);
int parallel_count(const struct options *o);
int parallel_most(const struct options *o);
/* Sessions that the options' mode opens at a time. */
int parallel_sessions(const struct options *o);
/* ERR_USAGE for an invalid or out-of-range number. */
int parallel_check(const struct options *o, struct error *e);

#endif
