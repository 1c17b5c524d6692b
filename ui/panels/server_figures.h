/* Figures reported by a remote server (--connect), in the panel of the expert map. UI thread. */
#ifndef UI_PANELS_SERVER_FIGURES_H
#define UI_PANELS_SERVER_FIGURES_H

#include "ui/canvas.h"
#include "ui/model.h"

#define SERVER_FIGURES_ROWS 4 /* most rows it draws */

/* Draws in the upper rows of r; returns how many. */
int server_figures_draw(struct canvas *c, struct rect r, const struct ui_model *m);

#endif
