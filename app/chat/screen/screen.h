/* The chat on the screen. */
#ifndef APP_CHAT_SCREEN_SCREEN_H
#define APP_CHAT_SCREEN_SCREEN_H

#include "app/options/options.h"

/* Runs until the user quits. ERR_USAGE before anything is displayed: the terminal is unsuitable
 * (the caller uses line mode). */
int chat_run(struct options *o, struct error *e);

#endif
