/* The screen as a grid of cells: panels draw on it, tests compare it, the terminal shows the
 * changes. Owner and thread: the UI thread. Drawing clips to the canvas and to the clip rectangle,
 * so a panel cannot touch a cell outside its own. A cell is small and compared by value: longer
 * clusters are in a pool, cleared by canvas_clear. */
#ifndef UI_CANVAS_H
#define UI_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct rect {
    int x, y, w, h;
};

enum { /* struct style .attrs */
       STYLE_BOLD = 1,
       STYLE_DIM = 2,
       STYLE_ITALIC = 4,
       STYLE_UNDERLINE = 8,
       STYLE_REVERSE = 16,
};

struct style {
    int16_t fg, bg; /* palette index, -1: the terminal's own */
    uint16_t attrs;
};

#define STYLE_PLAIN ((struct style){-1, -1, 0})

struct cell {
    /* code point; CELL_POOL | offset: cluster in the pool; 0: right half of a wide cell */
    uint32_t ch;
    struct style style;
    uint16_t width; /* 1, 2; 0: right half */
};

#define CELL_POOL 0x80000000u

#define CANVAS_LINKS 64

/* Cells of a row with a hyperlink; the drawing code owns the address. */
struct canvas_link {
    int x, y, w;
    const char *url;
    size_t len;
};

struct canvas {
    int w, h;
    struct cell *cells; /* w * h, row-major */
    struct rect clip;
    char *pool;
    size_t pool_used, pool_size;
    int cursor_x, cursor_y;                 /* -1: hidden */
    struct canvas_link links[CANVAS_LINKS]; /* until canvas_clear */
    int n_links;
};

int canvas_init(struct canvas *c, int w, int h); /* 0 or ERR_MEMORY; cleared */
void canvas_release(struct canvas *c);
int canvas_resize(struct canvas *c, int w, int h); /* cleared; on failure unchanged */
void canvas_clear(struct canvas *c);               /* spaces, no clip, no cursor */

struct rect rect_intersect(struct rect a, struct rect b); /* w and h 0 if disjoint */
/* Narrows the clip to its intersection with r; returns the previous one, to be restored with
 * canvas_clip_set. */
struct rect canvas_clip(struct canvas *c, struct rect r);
void canvas_clip_set(struct canvas *c, struct rect r);

/* Text in cells starting at x; returns the column after it, drawn or clipped. Newlines and tabs are
 * drawn as one space. */
int canvas_text(struct canvas *c, int x, int y, struct style s, const char *text);
int canvas_text_n(struct canvas *c, int x, int y, struct style s, const char *text, size_t len);
/* At most width cells; a longer text ends in an ellipsis. Returns the columns used. */
int canvas_text_fit(struct canvas *c, int x, int y, int width, struct style s, const char *text);
/* ends before x_end; returns where it starts */
int canvas_text_right(struct canvas *c, int x_end, int y, struct style s, const char *text);
int canvas_printf(struct canvas *c, int x, int y, struct style s, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* one code point of width 1 */
void canvas_put(struct canvas *c, int x, int y, struct style s, uint32_t ch);
void canvas_fill(struct canvas *c, struct rect r, struct style s, uint32_t ch);

/* Makes these cells a link; the address must stay valid until the canvas was shown. Clipped cells,
 * and links beyond the limit, are ignored. */
void canvas_link(struct canvas *c, int x, int y, int w, const char *url, size_t len);

/* NULL outside */
const struct cell *canvas_at(const struct canvas *c, int x, int y);
/* UTF-8 of a cell into out (GLYPH_BYTES + 1), NUL-terminated; returns the length, 0 for a right
 * half. */
int canvas_cell_text(const struct canvas *c, const struct cell *cell, char *out);
bool canvas_cell_equal(const struct canvas *a, const struct cell *p, const struct canvas *b,
                       const struct cell *q);

/* Prints the screen as text, trailing spaces cut; with styles: a letter per cell below, and a
 * legend (tests, --dump). */
void canvas_print(const struct canvas *c, FILE *f, bool styles);

#endif
