/* Where everything stands: a pure function from the size of the screen (and what is open) to
 * rectangles. No state, any thread; tested for every size from 1x1 to 250x80. The chat keeps at
 * least 60 % of the width wherever panels stand beside it. */
#ifndef UI_LAYOUT_H
#define UI_LAYOUT_H

#include "ui/canvas.h"

#define LAYOUT_PANELS 16
#define LAYOUT_ACROSS 60 /* percent of the rows that a panel across takes at most */
/* from this priority on a panel waits until the others have all the rows they want */
#define LAYOUT_LUXURY 6
#define LAYOUT_KEYS 20 /* rows from which the keys have one */

enum layout_mode {
    /* below 20x5: the text above the input line, which has the only row of one */
    LAYOUT_TEXT,
    /* below 60 columns: a status line; a focused panel takes the chat's place */
    LAYOUT_LINE,
    /* below 100: one narrow column, what does not fit waits behind tabs */
    LAYOUT_TABS,
    LAYOUT_COLUMN,
    LAYOUT_TWO,  /* from 180x30: two columns */
    LAYOUT_WIDE, /* there too: one panel lies across both, on top */
};

struct layout_panel {
    bool open;
    int min, want; /* rows below the title row */
    int grow;      /* share of the rows that are left; 0: none */
    int most;      /* never more rows than this; 0: no limit */
    /* rows between this and most are of no use to it: it takes most or this; 0: all are */
    int step;
    int priority; /* smaller stays longer when rows are short */
    int column;   /* 0 or 1 where there are two */
    /* has what it wants before the others get more than they need: it is cut where rows are
     * missing */
    bool whole;
    bool across; /* where there are two columns it takes both of them; at most one panel does */
    bool stage; /* stands in the chat's place, which it takes with others of that kind */
};

struct layout_request {
    int w, h;
    int n_panels;
    struct layout_panel panels[LAYOUT_PANELS];
    int focus;      /* index of the focused panel, -1: the input line */
    int zoom;       /* index of the panel that has the screen, -1: none */
    int input_rows; /* rows the input line would like */
    bool keys;      /* a row for the keys at the bottom, where there is room */
};

struct layout {
    enum layout_mode mode;
    struct rect title; /* one row at the top; h 0 in LAYOUT_TEXT */
    struct rect chat; /* h 0: panels have its place */
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
