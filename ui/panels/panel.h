/* A panel is constant data and a few functions: one file ui/panels/NAME.c, one entry of
 * ui/panels/panels.def. It draws inside the given rectangle (the title row is drawn for it), reads
 * the model, and changes only the user's view: shared parts in the model (the map's layer, the
 * mode), its own (cursor, scroll) in its private state. UI thread. */
#ifndef UI_PANELS_PANEL_H
#define UI_PANELS_PANEL_H

#include "ui/canvas.h"
#include "ui/keys.h"
#include "ui/model.h"

/* How a panel is currently shown. */
struct panel_view {
    void *state;  /* state_size bytes of private state, zero at first; NULL: none */
    bool focused; /* it has the keys */
    bool zoomed;  /* it covers the whole screen */
};

/* Which screens contain it. */
enum panel_place {
    PANEL_OF_BOTH,
    PANEL_OF_CHAT,
    PANEL_OF_CONNECTED, /* a chat with a server (--connect) */
    PANEL_OF_SERVER,  /* a server's dashboard, in place of the chat */
    PANEL_OF_TRAINING /* likewise, on a training run's */
};

struct panel {
    const char *name; /* for title, tabs, keys and manual */
    bool open;        /* initially */
    enum panel_place place;
    bool training; /* also on a training run's screen, in its column */
    /* opened by its key over the whole screen, reset each time; closed when it loses focus */
    bool overlay;
    /* the action that toggles full screen; ACTION_NONE: none */
    enum action zoom;
    size_t state_size;    /* of its private state, kept by the screen; 0: none */
    int column, priority; /* see struct layout_panel */
    int min, grow;
    int grow_wide; /* grow where there are two columns; 0: as grow */
    /* least rows to be shown, where that varies; NULL: min */
    int (*least)(const struct ui_model *m);
    /* preferred rows, limited by `most` */
    int (*want)(const struct ui_model *m, int width);
    int (*most)(const struct ui_model *m, int width); /* NULL: no limit */
    int (*step)(const struct ui_model *m, int width); /* see struct layout_panel; NULL: 0 */
    /* whether two columns of that width side by side are useful; NULL: never */
    bool (*across)(const struct ui_model *m, int width);
    /* rows needed while an item is expanded, taken from other panels; 0: none is. NULL: nothing
     * expands */
    int (*opened)(const struct ui_model *m, const struct panel_view *v, int width);
    void (*draw)(struct canvas *c, struct rect r, struct ui_model *m, const struct panel_view *v);
    /* Text at the right end of the title row, called after draw; NULL: nothing. */
    void (*side)(const struct ui_model *m, const struct panel_view *v, char *out, size_t size);
    /* handles keys while focused; false: not handled */
    bool (*act)(struct ui_model *m, const struct panel_view *v, enum action a);
    /* called when it gets the focus; NULL: nothing to do */
    void (*focused)(struct ui_model *m, const struct panel_view *v);
    /* The plan at its cursor, NULL: none; valid until the next call. NULL: it lists no plans. */
    const char *(*plan)(const struct ui_model *m, const struct panel_view *v);
    const char *const *explain;        /* what the figures mean; NULL-terminated lines */
    const char *const *explain_server; /* on a server's dashboard; NULL: the same */
    const char *const *explain_training; /* on a training run's; NULL: the same */
    const char *keys; /* its keys while focused, for the hint ("arrows, m"); NULL: none */
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

/* number of panels, from the first, that number keys toggle */
int panel_toggles(void);
int panel_find(const char *name);                      /* index, -1: no such panel */
bool panel_there(const struct ui_model *m, int index); /* whether this screen contains it */
bool panel_on_stage(const struct panel *p); /* it is shown in the chat's place */
/* index of this screen's panel with that zoom action, -1: none */
int panel_zoomed_by(const struct ui_model *m, enum action a);
const char *const *panel_explanation(const struct ui_model *m, const struct panel *p);
/* Allocates the private state of all panels; freed with the model. 0 or ERR_MEMORY. */
int panels_init(struct ui_model *m);
/* resets it to zero */
void panels_reset(struct ui_model *m);
struct panel_view panel_view(const struct ui_model *m, int index);

/* A label and its figure on one row, the figure at a fixed place. Returns the column after it. */
int panel_figure(struct canvas *c, int x, int y, const struct ui_model *m, const char *label,
                 int at, const char *figure, const char *unit);
/* Draws from m->explain_top on if c is given; returns the number of rows of the whole text. */
int panel_explain(struct canvas *c, struct rect r, const struct ui_model *m, const struct panel *p);

#endif
