/* What the maps of layers and experts share: layers down, experts across, a step of the ramp a
 * cell. Half blocks carry two layers a line where lines are short; without colours a glyph's
 * density is the heat. UI thread. */
#ifndef UI_PANELS_HEAT_MAP_H
#define UI_PANELS_HEAT_MAP_H

#include "ui/canvas.h"
#include "ui/keys.h"
#include "ui/theme.h"

struct heat_map_cell {
    double v;
    int layer, column;
};

extern const char heat_map_ramp[THEME_RAMP + 1]; /* as glyphs */

/* Glyphs instead of blocks. */
bool heat_map_glyphs(const struct theme *t);
/* Step of the ramp, 1 or more, of a value so many octaves over the middle. */
int heat_map_step(double octaves);
/* Columns before the cells: numbers of the layers of a line. */
int heat_map_label_width(int layers, int per_line);
void heat_map_label(char out[32], int layer, int layers, int per_line);
/* A deep map, and two halves of it fit side by side: `columns` each behind its labels. */
bool heat_map_folds(int layers, int columns, int per_line, int width);
/* Rows of the whole map at its densest, axis and foot included. */
int heat_map_rows(const struct theme *t, int layers, int columns, int width);
/* Lines for so many layers each, of the rows that are there. */
int heat_map_lines(int layers, int each, int rows);
/* The first layer shown, from where it was, so that `layer` is among those of all lines. */
int heat_map_top(int top, int layer, int layers, int per_line, int lines);
/* Marks a cell that is drawn already. below: the lower half of its line. */
void heat_map_cursor(struct canvas *c, int x, int y, int cell_w, const struct theme *t, bool below);
/* The ramp from its first step on, in these colours or glyphs. Returns the column after it. */
int heat_map_legend(struct canvas *c, int x, int y, const struct theme *t,
                    const int16_t colours[THEME_RAMP], const char *glyphs);
/* Moves the cursor and keeps it inside; false: a is no such action. last: the last column. */
bool heat_map_move(enum action a, int *layer, int *column, int layers, int last);
/* A list of the at most `most` cells of the largest v, those first; of equals the one that came
 * first. Takes a further one; returns how many there are now. */
int heat_map_rank(struct heat_map_cell *list, int n, int most, struct heat_map_cell cell);

#endif
