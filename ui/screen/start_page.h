/* The page in an empty chat: the program, two example messages, the keys, how to read the map.
 * Hidden after the first message and with --no-hints. UI thread. */
#ifndef UI_SCREEN_START_PAGE_H
#define UI_SCREEN_START_PAGE_H

#include "ui/model.h"

#define START_EXAMPLES 2

/* whether it is shown: hints are on, and the chat is empty */
bool start_page_wanted(const struct ui_model *m);
/* the message that Enter on an empty line sends, NULL: the page is not shown */
const char *start_page_example(const struct ui_model *m);
/* whether it, or a shorter version, fits */
bool start_page_fits(const struct ui_model *m, int columns, int rows);
/* Centred in r; nothing if it does not fit. */
void start_page_draw(struct canvas *c, struct rect r, const struct ui_model *m);

#endif
