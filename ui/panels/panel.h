/* A panel is constant data and a few functions: one file ui/panels/NAME.c, one entry of
 * ui/panels/panels.def. It draws inside the rectangle it is given (the title row is drawn for it),
 * reads the model, and changes only what the user looks at: what is shared in the model (the map's
 * layer, the mode), what is its own (cursor, scroll) in its private state. UI thread. */
#ifndef UI_PANELS_PANEL_H
#define UI_PANELS_PANEL_H

#include "ui/canvas.h"
#include "ui/keys.h"
#include "ui/model.h"

/* How the screen shows a panel at the moment. */
struct panel_view {
    void *state;  /* state_size bytes of its own, zero at first; NULL: it has none */
    bool focused; /* it has the keys */
    bool zoomed;  /* it has the screen */
};

/* Which screens have it. */
enum panel_place {
    PANEL_OF_BOTH,
    PANEL_OF_CHAT,
    PANEL_OF_SERVER,  /* a server's dashboard, in the place that the chat has elsewhere */
    PANEL_OF_TRAINING /* likewise on a training run's */
};

struct panel {
    const char *name; /* for its title, tabs, keys and documents */
    bool open;        /* at start */
    enum panel_place place;
    bool training; /* a training run's screen has it too, in its column */
    /* comes alone over the whole screen by its key, each time as at first, and goes when the keys
     * leave it */
    bool overlay;
    /* the action that gives it the whole screen, and takes it back; ACTION_NONE: none of its own */
    enum action zoom;
    size_t state_size;    /* of its private state, kept by the screen; 0: none */
    int column, priority; /* see struct layout_panel */
    int min, grow;
    int grow_wide; /* grow where there are two columns; 0: as grow */
    /* rows without which it is not shown, where that changes; NULL: min */
    int (*least)(const struct ui_model *m);
    /* rows it would like, at most `most` */
    int (*want)(const struct ui_model *m, int width);
    int (*most)(const struct ui_model *m, int width); /* NULL: no limit */
    int (*step)(const struct ui_model *m, int width); /* see struct layout_panel; NULL: 0 */
    /* it has use for two columns of such width side by side; NULL: never */
    bool (*across)(const struct ui_model *m, int width);
    /* rows that it needs while something is open in it, for which others give way; 0: nothing is.
     * NULL: nothing opens */
    int (*opened)(const struct ui_model *m, const struct panel_view *v, int width);
    void (*draw)(struct canvas *c, struct rect r, struct ui_model *m, const struct panel_view *v);
    /* Right end of the title row, after it was drawn; NULL: nothing. */
    void (*side)(const struct ui_model *m, const struct panel_view *v, char *out, size_t size);
    /* keys while focused; false: not its */
    bool (*act)(struct ui_model *m, const struct panel_view *v, enum action a);
    /* it was given the keys; NULL: nothing to do */
    void (*focused)(struct ui_model *m, const struct panel_view *v);
    /* The plan under its cursor, NULL: none; valid until the next call. NULL: it lists no plans. */
    const char *(*plan)(const struct ui_model *m, const struct panel_view *v);
    const char *const *explain;        /* what the figures mean; NULL-terminated lines */
    const char *const *explain_server; /* on a server's dashboard; NULL: the same */
    const char *const *explain_training; /* on a training run's; NULL: the same */
    const char *keys; /* its own while focused, for the hint ("arrows, m"); NULL: none */
    bool whole;       /* see struct layout_panel */
};

#define PANEL(name) extern const struct panel panel_##name;
#include "ui/panels/panels.def"
#undef PANEL

#define PANEL(name) +1
enum {
    PANEL_COUNT =
#include "ui/panels/panels.def"
};
#undef PANEL

extern const struct panel *const panels[PANEL_COUNT];

/* how many of them, the first, are shown and hidden by their number */
int panel_toggles(void);
int panel_find(const char *name);                      /* its index, -1: there is none */
bool panel_there(const struct ui_model *m, int index); /* this screen has it */
bool panel_on_stage(const struct panel *p); /* it stands in the chat's place */
/* the panel of this screen whose action this is, -1: no panel's */
int panel_zoomed_by(const struct ui_model *m, enum action a);
const char *const *panel_explanation(const struct ui_model *m, const struct panel *p);
/* Private state of all panels, in the model, which frees it: 0 or ERR_MEMORY. */
int panels_init(struct ui_model *m);
/* as they were at first */
void panels_reset(struct ui_model *m);
struct panel_view panel_view(const struct ui_model *m, int index);

/* A label and its figure on one row, the figure at a fixed place. Returns the column after it. */
int panel_figure(struct canvas *c, int x, int y, const struct ui_model *m, const char *label,
                 int at, const char *figure, const char *unit);
/* Draws from m->explain_top on when c is given; returns all rows it takes. */
int panel_explain(struct canvas *c, struct rect r, const struct ui_model *m, const struct panel *p);

#endif
