/* From options and the environment to a terminal that shows frames: for the chat and the server's
 * dashboard. UI thread. */
#ifndef APP_SETUP_SCREEN_SCREEN_SETUP_H
#define APP_SETUP_SCREEN_SCREEN_SETUP_H

#include "app/options/options.h"
#include "ui/terminal.h"
#include "ui/theme.h"

#include <signal.h>

/* Cells are UTF-8: uses C.UTF-8 if the locale has another encoding; *utf8: it did not. ERR_USAGE:
 * no such locale. */
int screen_locale(bool *utf8, struct error *e);
/* Standard input and output. Errors of terminal_open. */
int screen_terminal_open(struct terminal **out, const struct options *o, bool utf8,
                         struct error *e);
/* Colours by the options or the terminal's background. An unusable theme file: its error, and the
 * theme is unchanged. */
int screen_theme_take(struct theme *theme, const struct terminal *t, const struct options *o,
                      struct error *e);
/* The calling thread's signal mask with SIGWINCH, SIGTSTP, SIGCONT blocked (and with `all` SIGINT,
 * SIGTERM, SIGHUP, SIGQUIT), which arrive on the descriptor; threads started later inherit it.
 * Close the descriptor and restore *old at the end. */
int screen_signals_open(bool all, sigset_t *old);

#endif
