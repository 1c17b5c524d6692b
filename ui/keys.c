/* See keys.h. In a chat plain letters are text, so the dashboard uses function keys, Alt-digits and
 * keys of the focused panel. */
#include "ui/keys.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#define CTRL(c) ((c)&0x1f)

const char *const keys_plans[KEYS_PLANS] = {"cpu",      "gpu",     "hot",
                                            "balanced", "dynamic", "attention-gpu"};

static const struct key_binding table[] = {
    {KEYS_CHAT, '\r', 0, ACTION_SEND, 0, "Enter", "send the message, or run the command"},
    {KEYS_CHAT, '\n', 0, ACTION_LINE, 0, "Ctrl-J",
     "begin a new line in the message; so do Alt-Enter and text between \"\"\" and \"\"\""},
    {KEYS_CHAT, 0x1b, 0, ACTION_STOP, 0, "Esc", "stop the answer; take back a waiting message"},
    {KEYS_CHAT, CTRL('c'), 0, ACTION_INTERRUPT, 0, "Ctrl-C",
     "stop the answer, or clear the line; on an empty line asks, twice quits"},
    {KEYS_CHAT, CTRL('d'), 0, ACTION_END_OF_INPUT, 0, "Ctrl-D", "on an empty line: quit"},
    {KEYS_CHAT, '\t', 0, ACTION_FOCUS_NEXT, 0, "Tab",
     "complete a command or its value; on an empty line: give the keys to a panel"},
    {KEYS_CHAT, KEY_BACKTAB, 0, ACTION_FOCUS_PREVIOUS, 0, "Shift-Tab",
     "give the keys to the last panel"},
    {KEYS_CHAT, 0, 0, ACTION_LINE, 0, "Up, Down",
     "earlier and later messages; in a message of several lines: its lines; after a slash: choose "
     "a command, which Enter takes"},
    {KEYS_CHAT, 0, 0, ACTION_LINE, 0, "Ctrl-R", "search the earlier messages"},
    {KEYS_CHAT, 0, 0, ACTION_LINE, 0, "Ctrl-X Ctrl-E", "write the message in $VISUAL or $EDITOR"},
    {KEYS_CHAT, KEY_PAGE_UP, 0, ACTION_SCROLL_UP, 0, "PgUp, PgDn",
     "scroll the chat by a page; the mouse wheel scrolls it by lines"},
    {KEYS_CHAT, KEY_PAGE_DOWN, 0, ACTION_SCROLL_DOWN, 0, NULL, NULL},
    {KEYS_CHAT, KEY_UP, KEY_SHIFT, ACTION_SCROLL_LINE_UP, 0, "Shift-Up, -Down",
     "scroll the chat by a line"},
    {KEYS_CHAT, KEY_DOWN, KEY_SHIFT, ACTION_SCROLL_LINE_DOWN, 0, NULL, NULL},
    {KEYS_CHAT, KEY_HOME, KEY_CTRL, ACTION_SCROLL_TOP, 0, "Ctrl-Home, -End",
     "to the first line of the chat; to the newest"},
    {KEYS_CHAT, KEY_END, KEY_CTRL, ACTION_SCROLL_END, 0, NULL, NULL},
    {KEYS_CHAT, KEY_UP, KEY_ALT, ACTION_ANSWER_BEFORE, 0, "Alt-Up, -Down",
     "to the answer before, to the next one"},
    {KEYS_CHAT, KEY_DOWN, KEY_ALT, ACTION_ANSWER_AFTER, 0, NULL, NULL},
    {KEYS_CHAT, KEY_LEFT, KEY_ALT, ACTION_BRANCH_BEFORE, 0, "Alt-Left, -Right",
     "the answer before or after this one, where /regen or /edit made several"},
    {KEYS_CHAT, KEY_RIGHT, KEY_ALT, ACTION_BRANCH_AFTER, 0, NULL, NULL},
    {KEYS_CHAT, 't', KEY_ALT, ACTION_THOUGHTS, 0, "Alt-t",
     "show what the model thought before its answers, the arguments of the tools it calls and long "
     "messages of yours, or fold them"},
    {KEYS_CHAT, 'c', KEY_ALT, ACTION_INK, 0, "Alt-c",
     "colour the newest answer by probability, surprise, time or the expert under the map's "
     "cursor; "
     "a click on a token shows it in its panel"},
    {KEYS_CHAT, KEY_F1, 0, ACTION_HELP, 0, "F1", "show or hide the help"},
    {KEYS_CHAT, KEY_F2, 0, ACTION_PACE, 0, "F2", "run free, or at the pace of reading again"},
    {KEYS_CHAT, KEY_F3, 0, ACTION_HEAT_MODE, 0, "F3",
     "map of the experts: this answer, the session, now"},
    {KEYS_CHAT, KEY_F4, 0, ACTION_ZOOM_EXPERTS, 0, "F4",
     "the map of the experts on the whole screen, and back"},
    {KEYS_CHAT, KEY_F5, 0, ACTION_PLACE, 0, "F5 to F10", "placement at once"},
    {KEYS_CHAT, KEY_F6, 0, ACTION_PLACE, 1, NULL, NULL},
    {KEYS_CHAT, KEY_F7, 0, ACTION_PLACE, 2, NULL, NULL},
    {KEYS_CHAT, KEY_F8, 0, ACTION_PLACE, 3, NULL, NULL},
    {KEYS_CHAT, KEY_F9, 0, ACTION_PLACE, 4, NULL, NULL},
    {KEYS_CHAT, KEY_F10, 0, ACTION_PLACE, 5, NULL, NULL},
    {KEYS_CHAT, CTRL('f'), 0, ACTION_SEARCH, 0, "Ctrl-F",
     "find words in the chat; then n and N go to the next one and the one before, Esc ends"},
    {KEYS_CHAT, '1', KEY_ALT, ACTION_TOGGLE, 0, "Alt-1 to Alt-9", "show or hide a panel"},
    {KEYS_CHAT, '2', KEY_ALT, ACTION_TOGGLE, 1, NULL, NULL},
    {KEYS_CHAT, '3', KEY_ALT, ACTION_TOGGLE, 2, NULL, NULL},
    {KEYS_CHAT, '4', KEY_ALT, ACTION_TOGGLE, 3, NULL, NULL},
    {KEYS_CHAT, '5', KEY_ALT, ACTION_TOGGLE, 4, NULL, NULL},
    {KEYS_CHAT, '6', KEY_ALT, ACTION_TOGGLE, 5, NULL, NULL},
    {KEYS_CHAT, '7', KEY_ALT, ACTION_TOGGLE, 6, NULL, NULL},
    {KEYS_CHAT, '8', KEY_ALT, ACTION_TOGGLE, 7, NULL, NULL},
    {KEYS_CHAT, '9', KEY_ALT, ACTION_TOGGLE, 8, NULL, NULL},
    {KEYS_CHAT, 'p', KEY_ALT, ACTION_PRESET, 0, "Alt-p",
     "the next set of panels: all, none beside the chat, the map with the tokens, the figures"},
    {KEYS_CHAT, 'k', KEY_ALT, ACTION_KEY_BAR, 0, "Alt-k",
     "show or hide the row of keys at the bottom"},
    {KEYS_CHAT, CTRL('l'), 0, ACTION_REDRAW, 0, "Ctrl-L", "draw the screen anew"},
    {KEYS_CHAT, CTRL('z'), 0, ACTION_SUSPEND, 0, "Ctrl-Z", "suspend; fg comes back"},

    {KEYS_PANEL, '\t', 0, ACTION_FOCUS_NEXT, 0, "Tab, Shift-Tab", "the next panel, the one before"},
    {KEYS_PANEL, KEY_BACKTAB, 0, ACTION_FOCUS_PREVIOUS, 0, NULL, NULL},
    {KEYS_PANEL, 0x1b, 0, ACTION_FOCUS_LEAVE, 0, "Esc",
     "back to the input line; typing goes there too, and takes along letters that a panel took "
     "within a second"},
    {KEYS_PANEL, KEY_UP, 0, ACTION_UP, 0, "arrows",
     "move the cursor: a cell of the map, a plan, a token"},
    {KEYS_PANEL, KEY_DOWN, 0, ACTION_DOWN, 0, NULL, NULL},
    {KEYS_PANEL, KEY_LEFT, 0, ACTION_LEFT, 0, NULL, NULL},
    {KEYS_PANEL, KEY_RIGHT, 0, ACTION_RIGHT, 0, NULL, NULL},
    {KEYS_PANEL, KEY_PAGE_UP, 0, ACTION_PAGE_UP, 0, "PgUp, PgDn", "a page of lines"},
    {KEYS_PANEL, KEY_PAGE_DOWN, 0, ACTION_PAGE_DOWN, 0, NULL, NULL},
    {KEYS_PANEL, KEY_HOME, 0, ACTION_FIRST, 0, "Home, End", "to the first, to the last"},
    {KEYS_PANEL, KEY_END, 0, ACTION_LAST, 0, NULL, NULL},
    {KEYS_PANEL, '\r', 0, ACTION_CHOOSE, 0, "Enter",
     "placement: switch to the plan under the cursor; tokens: what else was likely there"},
    {KEYS_PANEL, 'z', 0, ACTION_ZOOM, 0, "z", "the panel on the whole screen, and back"},
    {KEYS_PANEL, 'l', 0, ACTION_LENS, 0, "l",
     "tokens: what each layer made of this one, and would have with other experts (/lens)"},
    {KEYS_PANEL, 'm', 0, ACTION_MODE, 0, "m",
     "experts: this answer, the session, now; with --beside: 1 against 2"},
    {KEYS_PANEL, '+', 0, ACTION_FASTER, 0, "+, -",
     "figures change more often, less often: every 0.1 to 10 seconds"},
    {KEYS_PANEL, '-', 0, ACTION_SLOWER, 0, NULL, NULL},
    {KEYS_PANEL, 'x', KEY_ALT, ACTION_HIDE, 0, "Alt-x", "hide the panel"},
    {KEYS_PANEL, '?', 0, ACTION_EXPLAIN, 0, "?", "what the figures of this panel mean"},

    {KEYS_SERVER, 'q', 0, ACTION_QUIT, 0, "q, Ctrl-C",
     "let end what is under way, for half a minute at most, and quit; again: at once"},
    {KEYS_SERVER, CTRL('c'), 0, ACTION_QUIT, 0, NULL, NULL},
    {KEYS_SERVER, '?', 0, ACTION_HELP, 0, "?", "show or hide the help; in a panel: its figures"},
    {KEYS_SERVER, 0, 0, ACTION_NONE, 0, "as elsewhere",
     "Tab and the keys in a panel, F1, F3 to F10, Alt-digits, Alt-p, Alt-k, Ctrl-L, Ctrl-Z"},

    {KEYS_TRAINING, 'q', 0, ACTION_QUIT, 0, "q, Ctrl-C",
     "write a checkpoint and quit; the same command goes on there"},
    {KEYS_TRAINING, CTRL('c'), 0, ACTION_QUIT, 0, NULL, NULL},
    {KEYS_TRAINING, KEY_F3, 0, ACTION_HEAT_MODE, 0, "F3",
     "map of what learns: the newest step, since the start"},
    {KEYS_TRAINING, KEY_F4, 0, ACTION_ZOOM_EXPERTS, 0, "F4",
     "that map on the whole screen, and back"},
    {KEYS_TRAINING, '?', 0, ACTION_HELP, 0, "?", "show or hide the help; in a panel: its figures"},
    {KEYS_TRAINING, 0, 0, ACTION_NONE, 0, "as elsewhere",
     "Tab and the keys in a panel, F1, Alt-2 and Alt-3, Alt-k, Ctrl-L, Ctrl-Z"},
};

/* Whether a chat key also works on a dashboard. */
static bool of_dashboard(enum key_context context, enum action a)
{
    if (a == ACTION_PLACE)
        return context == KEYS_SERVER;
    return a == ACTION_FOCUS_NEXT || a == ACTION_FOCUS_PREVIOUS || a == ACTION_HELP ||
           a == ACTION_HEAT_MODE || a == ACTION_ZOOM_EXPERTS || a == ACTION_TOGGLE ||
           a == ACTION_KEY_BAR || (a == ACTION_PRESET && context == KEYS_SERVER) ||
           a == ACTION_REDRAW || a == ACTION_SUSPEND;
}

const struct key_binding *keys_table(int *n)
{
    *n = (int)(sizeof table / sizeof table[0]);
    return table;
}

enum action keys_lookup(enum key_context context, uint32_t key, unsigned mods, int *index)
{
    size_t i;

    assert(index && context <= KEYS_TRAINING);
    *index = 0;
    for (i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].context == context && table[i].key == key && table[i].key &&
            table[i].mods == mods) {
            *index = table[i].index;
            return table[i].action;
        }
    if (context == KEYS_SERVER || context == KEYS_TRAINING) {
        enum action a = keys_lookup(KEYS_CHAT, key, mods, index);

        return of_dashboard(context, a) ? a : ACTION_NONE;
    }
    /* Keys not used by a panel work as in the chat: scrolling, function keys, quitting. Characters
     * do not. */
    if (context == KEYS_PANEL && (key >= 0x200000 || key < 0x20 || (mods & KEY_ALT)))
        return keys_lookup(KEYS_CHAT, key, mods, index);
    return ACTION_NONE;
}
