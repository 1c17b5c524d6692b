/* The texts given by the options: a prompt and a system message. Main thread; a signal interrupts
 * reading from a pipe. */
#ifndef APP_SETUP_PROMPT_H
#define APP_SETUP_PROMPT_H

#include "app/options/options.h"

/* -p, -f and standard input as requested; escapes applied. *out is the caller's. ERR_IO, ERR_USAGE
 * (too large, not text). */
int prompt_read(const struct options *o, char **out, struct error *e);
/* -sys or -sysf; *out NULL: none. The caller's. */
int prompt_system(const struct options *o, char **out, struct error *e);

#endif
