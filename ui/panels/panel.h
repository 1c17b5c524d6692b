/* A panel is constant data and a few functions: one file ui/panel_NAME.c, one entry of panels[]. It draws inside the rectangle it is given
 * (the title row is drawn for it), reads the model, and changes only what the user looks at (cursor, mode, scroll). UI thread. */
#ifndef UI_PANEL_H
#define UI_PANEL_H

#include "ui/keys.h"
#include "ui/model.h"

struct panel {
    const char *name;            /* for Alt-digits, tabs, /set panels */
    const char *help;            /* what it shows, for the documents */
    bool open;                   /* at start */
    int column, priority;        /* see struct layout_panel */
    int min, grow;
    int grow_wide;               /* grow where there are two columns; 0: as grow */
    int (*want)(const struct ui_model *m, int width);        /* rows it would like, at most `most` */
    int (*most)(const struct ui_model *m, int width);        /* NULL: no limit */
    int (*step)(const struct ui_model *m, int width);        /* see struct layout_panel; NULL: 0 */
    void (*draw)(struct canvas *c, struct rect r, struct ui_model *m);
    void (*side)(const struct ui_model *m, char *out, size_t size);     /* right end of the title row; NULL: nothing */
    bool (*act)(struct ui_model *m, enum action a);          /* keys while focused; false: not its */
    void (*focused)(struct ui_model *m);                     /* it was given the keys; NULL: nothing to do */
    const char *const *explain;  /* what the figures mean; NULL-terminated lines */
    const char *keys;            /* its own while focused, for the hint ("arrows, m"); NULL: none */
    bool whole;                  /* see struct layout_panel */
};

enum { PANEL_SPEED, PANEL_MEMORY, PANEL_DEVICES, PANEL_EXPERTS, PANEL_PLACEMENT, PANEL_TOKENS, PANEL_HELP, PANEL_COUNT };

extern const struct panel *const panels[PANEL_COUNT];
extern const struct panel panel_speed, panel_memory, panel_devices, panel_experts, panel_placement, panel_tokens, panel_help;

/* A label and its figure on one row, the figure at a fixed place. Returns the column after it. */
int panel_figure(struct canvas *c, int x, int y, const struct ui_model *m, const char *label, int at, const char *figure, const char *unit);
/* Draws from m->explain_top on when c is given; returns all rows it takes. */
int panel_explain(struct canvas *c, struct rect r, const struct ui_model *m, const struct panel *p);

#endif
