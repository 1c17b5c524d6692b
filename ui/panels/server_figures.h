/* What a server that computes (--connect) tells of itself, in the panel where the map of experts
 * would be. UI thread. */
#ifndef UI_PANELS_SERVER_FIGURES_H
#define UI_PANELS_SERVER_FIGURES_H

#include "ui/canvas.h"
#include "ui/model.h"

#define SERVER_FIGURES_ROWS 4 /* it takes at most */

/* In the upper rows of r; returns how many. */
int server_figures_draw(struct canvas *c, struct rect r, const struct ui_model *m);

#endif
