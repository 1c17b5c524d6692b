/* Signals that end a run, and a standard output that can no longer be written. signals_last: any
 * thread; the rest: main thread. */
#ifndef APP_COMMON_SIGNALS_H
#define APP_COMMON_SIGNALS_H

#include "engine/base/error.h"

#include <stdbool.h>

/* Catches SIGINT, SIGTERM and SIGHUP. */
void signals_catch(void);
/* Restores the previous handlers. */
void signals_release(void);
/* The newest signal since signals_catch, 0: none. Modes poll it between tokens. */
int signals_last(void);
/* The same as a stop callback; ctx is not used. */
int signals_stop(void *ctx);
/* 0, or ERR_CANCELLED when a signal came. */
int signals_check(struct error *e);

/* The error for a standard output that could not be written for the reason `why` (an errno):
 * ERR_IO. what: "the answer", or NULL. If its reader is gone (EPIPE) the text is empty, and
 * output_is_gone tells main to exit like a tool killed by SIGPIPE. */
int output_failed(const char *what, int why, struct error *e);
bool output_is_gone(void);
#define OUTPUT_EXIT_GONE 141 /* 128 + SIGPIPE */

#endif
