/* The chat line by line: TERM=dumb, --plain, --screen-reader, no terminal. See linemode.c. */
#ifndef APP_CHAT_SCREEN_LINEMODE_H
#define APP_CHAT_SCREEN_LINEMODE_H

#include "app/options/options.h"

/* No escape sequence is ever written. Standard input may be a pipe: one message a line, the end of
 * input ends the chat. */
int linemode_run(struct options *o, struct error *e);
/* Whether this run's chat must be line by line: by option, TERM, or for lack of a terminal. */
bool linemode_wanted(const struct options *o);

#endif
