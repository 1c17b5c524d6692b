/* What stands in an empty chat: what this is, two messages to begin with, where the keys are, how
 * the map is read. Gone with the first message; never there with --no-hints. UI thread. */
#ifndef UI_SCREEN_START_PAGE_H
#define UI_SCREEN_START_PAGE_H

#include "ui/model.h"

#define START_EXAMPLES 2

/* it is to be seen: hints are wanted, and nothing was said */
bool start_page_wanted(const struct ui_model *m);
/* the message that Enter on an empty line sends, NULL: the page is not there */
const char *start_page_example(const struct ui_model *m);
/* there is room for it, or for a shorter one */
bool start_page_fits(const struct ui_model *m, int columns, int rows);
/* In the middle of r; nothing where it does not fit. */
void start_page_draw(struct canvas *c, struct rect r, const struct ui_model *m);

#endif
