/* See heat_map.h. */
#include "ui/panels/heat_map.h"

#include <math.h>
#include <stdio.h>

#define DEEP 8 /* from here on layers a map folds where rows are missing */

const char heat_map_ramp[THEME_RAMP + 1] = " .:-=+*#@";

bool heat_map_glyphs(const struct theme *t)
{
    return t->depth == THEME_MONO || t->ascii;
}

int heat_map_step(double octaves)
{
    int step = (int)lround(THEME_RAMP / 2 + octaves / 0.75);

    return step < 1 ? 1 : step >= THEME_RAMP ? THEME_RAMP - 1 : step;
}

int heat_map_label_width(int layers, int per_line)
{
    return per_line == 2 ? (layers > 10 ? 6 : 4) : (layers > 9 ? 3 : 2) + (layers > 99);
}

void heat_map_label(char out[32], int layer, int layers, int per_line)
{
    if (per_line == 2 && layer + 1 < layers)
        snprintf(out, 32, layers > 10 ? "%2d %-2d" : "%d %d", layer, layer + 1);
    else
        snprintf(out, 32, layers > 10 ? "%2d" : "%d", layer);
}

bool heat_map_folds(int layers, int columns, int per_line, int width)
{
    return layers > DEEP && 2 * (heat_map_label_width(layers, per_line) + columns) + 1 <= width;
}

int heat_map_rows(const struct theme *t, int layers, int columns, int width)
{
    int per_line = heat_map_glyphs(t) ? 1 : 2;

    per_line *= heat_map_folds(layers, columns, per_line, width) ? 2 : 1;
    return (layers + per_line - 1) / per_line + 2;
}

int heat_map_lines(int layers, int each, int rows)
{
    int lines = (layers + each - 1) / each;

    return lines < rows ? lines : rows < 0 ? 0 : rows;
}

int heat_map_top(int top, int layer, int layers, int per_line, int lines)
{
    int room = lines * per_line, last = layers + per_line - 1 - room;

    if (layer < top)
        top = layer / per_line * per_line;
    if (lines > 0 && layer >= top + room)
        top = (layer / per_line - lines + 1) * per_line;
    if (top > last)
        top = last / per_line * per_line;
    return top < 0 ? 0 : top;
}

void heat_map_cursor(struct canvas *c, int x, int y, int cell_w, const struct theme *t, bool below)
{
    for (int k = 0; k < (cell_w > 1 ? 2 : 1); k++) {
        const struct cell *cell = canvas_at(c, x + k, y);
        struct style s = theme_style(t, ROLE_STYLE_NEW);

        if (!cell)
            continue;
        if (heat_map_glyphs(t)) {
            s = cell->style;
            s.attrs = STYLE_REVERSE;
            canvas_put(c, x + k, y, s, cell->ch == ' ' ? '.' : cell->ch);
        } else {
            /* A frame of light around one half would hide the other: the cursor is a ring in the
             * cell's own colour. */
            s.bg = below ? cell->style.bg : cell->style.fg;
            canvas_put(c, x + k, y, s, cell_w > 1 ? (k ? ']' : '[') : 'o');
        }
    }
}

int heat_map_legend(struct canvas *c, int x, int y, const struct theme *t,
                    const int16_t colours[THEME_RAMP], const char *glyphs)
{
    for (int i = 1; i < THEME_RAMP; i++)
        canvas_put(c, x++, y,
                   t->depth == THEME_MONO ? STYLE_PLAIN : (struct style){colours[i], -1, 0},
                   heat_map_glyphs(t) ? (unsigned char)glyphs[i] : 0x2588);
    return x;
}

static int within(int at, int last)
{
    at = at > last ? last : at;
    return at < 0 ? 0 : at;
}

bool heat_map_move(enum action a, int *layer, int *column, int layers, int last)
{
    switch (a) {
    case ACTION_UP: --*layer; break;
    case ACTION_DOWN: ++*layer; break;
    case ACTION_LEFT: --*column; break;
    case ACTION_RIGHT: ++*column; break;
    case ACTION_PAGE_UP: *layer -= 8; break;
    case ACTION_PAGE_DOWN: *layer += 8; break;
    case ACTION_FIRST: *column = 0; break;
    case ACTION_LAST: *column = last; break;
    default: return false;
    }
    *layer = within(*layer, layers - 1);
    *column = within(*column, last);
    return true;
}

int heat_map_rank(struct heat_map_cell *list, int n, int most, struct heat_map_cell cell)
{
    int i = n < most ? n : n - 1;

    if (n == most && cell.v <= list[i].v)
        return n;
    for (; i > 0 && cell.v > list[i - 1].v; i--)
        list[i] = list[i - 1];
    list[i] = cell;
    return n < most ? n + 1 : n;
}
