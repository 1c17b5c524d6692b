/* Layout: a pure function from the size of the screen (and what is open) to rectangles. No state,
 * any thread; tested for every size from 1x1 to 250x80. The chat keeps at least 60 % of the width
 * beside panels. */
#ifndef UI_LAYOUT_H
#define UI_LAYOUT_H

#include "ui/canvas.h"

#define LAYOUT_PANELS 16
#define LAYOUT_ACROSS 60 /* most percent of the rows for a panel across */
/* from this priority on a panel gets rows only after the others have all they want */
#define LAYOUT_LUXURY 6
#define LAYOUT_KEYS 20 /* least rows for showing the key bar */

enum layout_mode {
    /* below 20x5: the text above the input line, which is shown alone in a single row */
    LAYOUT_TEXT,
    /* below 60 columns: a status line; a focused panel replaces the chat */
    LAYOUT_LINE,
    /* below 100: one narrow column, panels that do not fit are behind tabs */
    LAYOUT_TABS,
    LAYOUT_COLUMN,
    LAYOUT_TWO,  /* from 180x30: two columns */
    LAYOUT_WIDE, /* also: one panel spans both, on top */
};

struct layout_panel {
    bool open;
    int min, want; /* rows below the title row */
    int grow;      /* share of the remaining rows; 0: none */
    int most;      /* most rows; 0: no limit */
    /* counts between this and most are useless to it: it gets most or this; 0: all are useful */
    int step;
    int priority; /* smaller is kept longer when rows are short */
    int column;   /* 0 or 1 if there are two */
    /* gets what it wants before the others get more than they need: it is truncated if rows are
     * missing */
    bool whole;
    bool across; /* spans both columns if there are two; at most one panel does */
    bool stage; /* shown in the chat's place, shared with others of that kind */
};

struct layout_request {
    int w, h;
    int n_panels;
    struct layout_panel panels[LAYOUT_PANELS];
    int focus;      /* index of the focused panel, -1: the input line */
    int zoom;       /* index of the full-screen panel, -1: none */
    int input_rows; /* preferred rows of the input line */
    bool keys;      /* a row for the keys at the bottom, where there is room */
};

struct layout {
    enum layout_mode mode;
    struct rect title; /* one row at the top; h 0 in LAYOUT_TEXT */
    struct rect chat; /* h 0: replaced by panels */
    struct rect rule[2];    /* vertical rules, left of each panel column; w 0: none */
    struct rect input_rule; /* h 0: none */
    struct rect input;      /* h 0: none */
    struct rect keys;       /* h 0: none */
    /* names of the panels, when not all open ones are shown; h 0: none */
    struct rect tabs;
    struct rect panels[LAYOUT_PANELS]; /* title row included; h 0: not shown */
};

enum layout_mode layout_mode(int w, int h);
void layout_make(struct layout *out, const struct layout_request *r);

#endif
