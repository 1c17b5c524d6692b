/* From options and the environment to a terminal that shows pictures: the chat's and the server's
 * dashboard's. UI thread. */
#ifndef APP_SETUP_SCREEN_SCREEN_SETUP_H
#define APP_SETUP_SCREEN_SCREEN_SETUP_H

#include "app/options/options.h"
#include "ui/terminal.h"
#include "ui/theme.h"

#include <signal.h>

/* Cells are UTF-8: takes C.UTF-8 where the locale is another one; *utf8: it was not. ERR_USAGE:
 * there is none. */
int screen_locale(bool *utf8, struct error *e);
/* Standard input and output. Errors of terminal_open. */
int screen_terminal_open(struct terminal **out, const struct options *o, bool utf8,
                         struct error *e);
/* Colours as the options or the terminal's ground say. A file that cannot be taken: its error, and
 * the theme stays. */
int screen_theme_take(struct theme *theme, const struct terminal *t, const struct options *o,
                      struct error *e);
/* The calling thread's set without SIGWINCH, SIGTSTP, SIGCONT (and with `all` SIGINT, SIGTERM,
 * SIGHUP, SIGQUIT), which come to the descriptor; threads that are started later inherit it. Close
 * the descriptor and set *old again. */
int screen_signals_open(bool all, sigset_t *old);

#endif
