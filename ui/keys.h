/* Every key and its action: one table for the program; ui/screen/key_help.h prints the help screen
 * and the manual from it. Immutable; any thread. */
#ifndef UI_KEYS_H
#define UI_KEYS_H

#include "ui/key_decoder.h"

#include <stdint.h>

enum key_context {
    KEYS_CHAT,  /* the input line is focused */
    KEYS_PANEL, /* a panel is focused */
    /* dashboards of a server and of a training run: these come before the others, of which they
     * share those not about the chat */
    KEYS_SERVER,
    KEYS_TRAINING
};

enum action {
    ACTION_NONE,
    ACTION_LINE, /* handled by the input line */
    ACTION_SEND,
    ACTION_STOP,
    ACTION_INTERRUPT,
    ACTION_END_OF_INPUT,
    ACTION_REDRAW,
    ACTION_SUSPEND,
    ACTION_SCROLL_UP,
    ACTION_SCROLL_DOWN,
    ACTION_SCROLL_LINE_UP,
    ACTION_SCROLL_LINE_DOWN,
    ACTION_SCROLL_TOP,
    ACTION_SCROLL_END,
    ACTION_THOUGHTS,
    ACTION_SEARCH,
    ACTION_ANSWER_BEFORE,
    ACTION_ANSWER_AFTER,
    ACTION_INK,
    ACTION_KEY_BAR,
    ACTION_PRESET, /* the next set of panels */
    ACTION_BRANCH_BEFORE,
    ACTION_BRANCH_AFTER,
    ACTION_HELP,
    ACTION_PACE,
    ACTION_HEAT_MODE,
    ACTION_ZOOM_EXPERTS,
    ACTION_PLACE,  /* index: of keys_plans */
    ACTION_TOGGLE, /* index: of the panel */
    ACTION_QUIT,
    ACTION_FOCUS_NEXT,
    ACTION_FOCUS_PREVIOUS,
    ACTION_FOCUS_LEAVE,
    ACTION_ZOOM,
    ACTION_HIDE,
    ACTION_EXPLAIN,
    ACTION_MODE,
    ACTION_FASTER, /* figures are updated more often, */
    ACTION_SLOWER, /* less often */
    ACTION_CHOOSE,
    ACTION_LENS, /* tokens: what the one at the cursor was made of */
    ACTION_UP,
    ACTION_DOWN,
    ACTION_LEFT,
    ACTION_RIGHT,
    ACTION_FIRST,
    ACTION_LAST,
    ACTION_PAGE_UP,
    ACTION_PAGE_DOWN,
};

struct key_binding {
    enum key_context context;
    uint32_t key; /* 0: a row for the documents only */
    unsigned mods;
    enum action action;
    int index;         /* parameter of the action; 0 if it has none */
    const char *label; /* "Ctrl-C"; NULL: the same as the row before, another spelling */
    /* one sentence without a full stop; the meaning of an index is added in print */
    const char *help;
};

/* The plans of F5 to F10, in the spelling of /place. */
#define KEYS_PLANS 6
#define KEYS_PLANS_FIRST 5
extern const char *const keys_plans[KEYS_PLANS];

const struct key_binding *keys_table(int *n);
/* ACTION_NONE: not bound. The index of the action goes to *index. */
enum action keys_lookup(enum key_context context, uint32_t key, unsigned mods, int *index);

#endif
