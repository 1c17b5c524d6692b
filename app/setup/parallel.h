/* --parallel: how many sessions compute side by side. Any thread; the options are checked when they
 * are parsed. */
#ifndef APP_SETUP_PARALLEL_H
#define APP_SETUP_PARALLEL_H

#include "app/options/options.h"

#define PARALLEL_MOST 256
#define PARALLEL_SERVE 4 /* where --serve is given no number */

/* Numbers of the option: fills at most max, returns how many there are; none was given: 1. A number
 * that is none, or out of range, counts as none. */
int parallel_numbers(const struct options *o, int *out, int max);
int parallel_count(const struct options *o);
int parallel_most(const struct options *o);
/* Sessions that the options' mode has open at a time. */
int parallel_sessions(const struct options *o);
/* ERR_USAGE where a number is none or out of range. */
int parallel_check(const struct options *o, struct error *e);

#endif
