/* The screen's first row: model, plan, context, state and sampling, what fits of them; the most
 * important figures where it is the only row beside the input line. UI thread. */
#ifndef UI_SCREEN_TITLE_H
#define UI_SCREEN_TITLE_H

#include "ui/layout.h"
#include "ui/model.h"

void title_draw(struct canvas *c, const struct layout *l, const struct ui_model *m);

#endif
