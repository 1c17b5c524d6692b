/* The chat on the screen. */
#ifndef APP_CHAT_SCREEN_SCREEN_H
#define APP_CHAT_SCREEN_SCREEN_H

#include "app/options/options.h"

/* Runs until the user quits. ERR_USAGE before anything was shown: the terminal cannot do it (the
 * caller takes line mode). */
int chat_run(struct options *o, struct error *e);

#endif
