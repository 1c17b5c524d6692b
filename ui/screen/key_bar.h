/* The bottom row: the keys available now, from the table of keys; the focused panel's if one is
 * focused. UI thread. */
#ifndef UI_SCREEN_KEY_BAR_H
#define UI_SCREEN_KEY_BAR_H

#include "ui/keys.h"
#include "ui/model.h"

void key_bar_draw(struct canvas *c, struct rect r, const struct ui_model *m);
/* The key at column x of a bar that begins at r.x: its row of the table, NULL: none. */
const struct key_binding *key_bar_at(struct rect r, const struct ui_model *m, int x);

#endif
