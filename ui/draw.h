/* Common drawing helpers of panels: bars, Braille graphs, formatted sizes and rates. Draws on a
 * canvas, stateless. UI thread. */
#ifndef UI_DRAW_H
#define UI_DRAW_H

#include "engine/run/report/messages.h"
#include "ui/canvas.h"
#include "ui/theme.h"

struct ui_history;

/* A bar of width cells filled to share (0 .. 1, NAN: empty) in eighths of a cell; `back` is the
 * background, 0 ramps none. */
void draw_bar(struct canvas *c, int x, int y, int width, double share, struct style s,
              struct style back);
/* The same as a thin line, in half cells: for many adjacent rows, where bars would form a block. */
void draw_line(struct canvas *c, int x, int y, int width, double share, struct style s,
               struct style back);
/* Newest values at the right, two per cell, scaled 0 .. top; dots if the terminal's font has
 * Braille. */
void draw_graph(struct canvas *c, struct rect r, const struct ui_history *h, double top,
                struct style s);
double draw_history_max(const struct ui_history *h, int newest);
/* One vertical bar of a cell: 0 .. 1. */
uint32_t draw_level(double share);
/* one cell: activity indicator */
uint32_t draw_spinner(unsigned step, bool ascii);

/* "412 B", "2.06 GiB", "0.12 GiB" -> always three significant digits; short: "2.06G". */
const char *draw_size(char out[16], double bytes, bool brief);
/* "112.4", "8.31", "12 430"; "–" for 0 */
const char *draw_rate(char out[16], double per_second);
/* "0:48", "12:07", "3:05:12"; "–" if unknown (negative) */
const char *draw_time(char out[24], double seconds);
const char *draw_seconds(char out[16], double seconds); /* "430 ms", "1.25 s" */
const char *draw_count(char out[24], uint64_t n);       /* thousands apart: "12 430" */
/* "stopped by you", "length reached", … */
const char *draw_stop_word(enum stop_reason r);

#endif
