/* Signals that end a run, and a standard output that can no longer be written. signals_last: any
 * thread; the rest: main thread. */
#ifndef APP_COMMON_SIGNALS_H
#define APP_COMMON_SIGNALS_H

#include "engine/base/error.h"

#include <stdbool.h>

/* Catches SIGINT, SIGTERM and SIGHUP. */
void signals_catch(void);
/* As it was before, for what came before the mode. */
void signals_release(void);
/* The number of the last one since signals_catch, 0: none. Modes poll it between tokens. */
int signals_last(void);
/* The same as a stop function that is given a context; ctx is not read. */
int signals_stop(void *ctx);
/* 0, or ERR_CANCELLED when a signal came. */
int signals_check(struct error *e);

/* Standard output could not be written for the reason `why` (an errno): ERR_IO. what: "the answer",
 * or NULL. When its reader has gone there is nothing to say: the text is empty, and output_is_gone
 * tells main to exit as tools do that the signal ends. */
int output_failed(const char *what, int why, struct error *e);
bool output_is_gone(void);
#define OUTPUT_EXIT_GONE 141 /* 128 + SIGPIPE */

#endif
