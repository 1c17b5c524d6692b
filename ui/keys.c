/* See keys.h. In a chat plain letters are text, so what belongs to the dashboard sits on function keys, Alt-digits and in the focus of a panel. */
#include "ui/keys.h"

#include <string.h>

#define CTRL(c) ((c) & 0x1f)

const char *const keys_plans[KEYS_PLANS] = {"cpu", "gpu", "hot", "balanced", "dynamic", "attention-gpu"};

static const struct key_binding table[] = {
    {KEYS_CHAT, '\r', 0, ACTION_SEND, "Enter", "send the message, or run the command"},
    {KEYS_CHAT, '\n', 0, ACTION_LINE, "Ctrl-J", "begin a new line in the message; so do Alt-Enter and text between \"\"\" and \"\"\""},
    {KEYS_CHAT, 0x1b, 0, ACTION_STOP, "Esc", "stop the answer; take back a waiting message"},
    {KEYS_CHAT, CTRL('c'), 0, ACTION_INTERRUPT, "Ctrl-C", "stop the answer, or clear the line; on an empty line asks, twice quits"},
    {KEYS_CHAT, CTRL('d'), 0, ACTION_END_OF_INPUT, "Ctrl-D", "on an empty line: quit"},
    {KEYS_CHAT, '\t', 0, ACTION_FOCUS_NEXT, "Tab", "complete a command or its value; on an empty line: give the keys to a panel"},
    {KEYS_CHAT, KEY_BACKTAB, 0, ACTION_FOCUS_PREVIOUS, "Shift-Tab", "give the keys to the last panel"},
    {KEYS_CHAT, 0, 0, ACTION_LINE, "Up, Down", "earlier and later messages; in a message of several lines: its lines"},
    {KEYS_CHAT, 0, 0, ACTION_LINE, "Ctrl-R", "search the earlier messages"},
    {KEYS_CHAT, 0, 0, ACTION_LINE, "Ctrl-X Ctrl-E", "write the message in $VISUAL or $EDITOR"},
    {KEYS_CHAT, KEY_PAGE_UP, 0, ACTION_SCROLL_UP, "PgUp, PgDn", "scroll the chat by a page; the mouse wheel scrolls it by lines"},
    {KEYS_CHAT, KEY_PAGE_DOWN, 0, ACTION_SCROLL_DOWN, NULL, NULL},
    {KEYS_CHAT, KEY_UP, KEY_SHIFT, ACTION_SCROLL_LINE_UP, "Shift-Up, -Down", "scroll the chat by a line"},
    {KEYS_CHAT, KEY_DOWN, KEY_SHIFT, ACTION_SCROLL_LINE_DOWN, NULL, NULL},
    {KEYS_CHAT, KEY_HOME, KEY_CTRL, ACTION_SCROLL_TOP, "Ctrl-Home, -End", "to the first line of the chat; to the newest"},
    {KEYS_CHAT, KEY_END, KEY_CTRL, ACTION_SCROLL_END, NULL, NULL},
    {KEYS_CHAT, KEY_F1, 0, ACTION_HELP, "F1", "show or hide the help"},
    {KEYS_CHAT, KEY_F2, 0, ACTION_PACE, "F2", "run free, or at the pace of reading again"},
    {KEYS_CHAT, KEY_F3, 0, ACTION_HEAT_MODE, "F3", "map of the experts: this answer, the session, now"},
    {KEYS_CHAT, KEY_F4, 0, ACTION_ZOOM_EXPERTS, "F4", "the map of the experts on the whole screen, and back"},
    {KEYS_CHAT, KEY_F5, 0, ACTION_PLACE_1, "F5 to F10", "placement at once: cpu, gpu, hot, balanced, dynamic, attention-gpu"},
    {KEYS_CHAT, KEY_F6, 0, ACTION_PLACE_2, NULL, NULL},
    {KEYS_CHAT, KEY_F7, 0, ACTION_PLACE_3, NULL, NULL},
    {KEYS_CHAT, KEY_F8, 0, ACTION_PLACE_4, NULL, NULL},
    {KEYS_CHAT, KEY_F9, 0, ACTION_PLACE_5, NULL, NULL},
    {KEYS_CHAT, KEY_F10, 0, ACTION_PLACE_6, NULL, NULL},
    {KEYS_CHAT, '1', KEY_ALT, ACTION_TOGGLE_1, "Alt-1 to Alt-6", "show or hide a panel: speed, memory, devices, experts, placement, tokens"},
    {KEYS_CHAT, '2', KEY_ALT, ACTION_TOGGLE_2, NULL, NULL},
    {KEYS_CHAT, '3', KEY_ALT, ACTION_TOGGLE_3, NULL, NULL},
    {KEYS_CHAT, '4', KEY_ALT, ACTION_TOGGLE_4, NULL, NULL},
    {KEYS_CHAT, '5', KEY_ALT, ACTION_TOGGLE_5, NULL, NULL},
    {KEYS_CHAT, '6', KEY_ALT, ACTION_TOGGLE_6, NULL, NULL},
    {KEYS_CHAT, CTRL('l'), 0, ACTION_REDRAW, "Ctrl-L", "draw the screen anew"},
    {KEYS_CHAT, CTRL('z'), 0, ACTION_SUSPEND, "Ctrl-Z", "suspend; fg comes back"},

    {KEYS_PANEL, '\t', 0, ACTION_FOCUS_NEXT, "Tab, Shift-Tab", "the next panel, the one before"},
    {KEYS_PANEL, KEY_BACKTAB, 0, ACTION_FOCUS_PREVIOUS, NULL, NULL},
    {KEYS_PANEL, 0x1b, 0, ACTION_FOCUS_LEAVE, "Esc", "back to the input line; typing goes there too, and takes along letters that a panel took within a second"},
    {KEYS_PANEL, KEY_UP, 0, ACTION_UP, "arrows", "move the cursor: a cell of the map, a plan, a token"},
    {KEYS_PANEL, KEY_DOWN, 0, ACTION_DOWN, NULL, NULL},
    {KEYS_PANEL, KEY_LEFT, 0, ACTION_LEFT, NULL, NULL},
    {KEYS_PANEL, KEY_RIGHT, 0, ACTION_RIGHT, NULL, NULL},
    {KEYS_PANEL, KEY_PAGE_UP, 0, ACTION_PAGE_UP, "PgUp, PgDn", "a page of lines"},
    {KEYS_PANEL, KEY_PAGE_DOWN, 0, ACTION_PAGE_DOWN, NULL, NULL},
    {KEYS_PANEL, KEY_HOME, 0, ACTION_FIRST, "Home, End", "to the first, to the last"},
    {KEYS_PANEL, KEY_END, 0, ACTION_LAST, NULL, NULL},
    {KEYS_PANEL, '\r', 0, ACTION_CHOOSE, "Enter", "placement: switch to the plan under the cursor"},
    {KEYS_PANEL, 'z', 0, ACTION_ZOOM, "z", "the panel on the whole screen, and back"},
    {KEYS_PANEL, 'm', 0, ACTION_MODE, "m", "experts: this answer, the session, now"},
    {KEYS_PANEL, 'x', KEY_ALT, ACTION_HIDE, "Alt-x", "hide the panel"},
    {KEYS_PANEL, '?', 0, ACTION_EXPLAIN, "?", "what the figures of this panel mean"},
};

const struct key_binding *keys_table(int *n)
{
    *n = (int)(sizeof table / sizeof table[0]);
    return table;
}

enum action keys_lookup(enum key_context context, uint32_t key, unsigned mods)
{
    size_t i;

    for (i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].context == context && table[i].key == key && table[i].key && table[i].mods == mods)
            return table[i].action;
    /* What is not a panel's own works as in the chat: scrolling, function keys, quitting. Characters do not. */
    if (context == KEYS_PANEL && (key >= 0x200000 || key < 0x20 || (mods & KEY_ALT)))
        return keys_lookup(KEYS_CHAT, key, mods);
    return ACTION_NONE;
}

const char *keys_context_title(enum key_context context)
{
    return context == KEYS_CHAT ? "In the chat" : "In a panel";
}

void keys_print_help(FILE *f)
{
    size_t i;
    int context = -1;

    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!table[i].label)
            continue;
        if ((int)table[i].context != context) {
            context = (int)table[i].context;
            fprintf(f, "%s%s\n", i ? "\n" : "", keys_context_title(table[i].context));
        }
        fprintf(f, "  %-16s %s\n", table[i].label, table[i].help);
    }
}

/* Roff takes a leading dot or apostrophe for a request, and a backslash for an escape. */
static void roff(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else if (*text == '\'')
            fputs("\\(aq", f);
        else
            fputc(*text, f);
    }
}

void keys_print_man(FILE *f)
{
    size_t i;
    int context = -1;

    fputs(".SH KEYS\n", f);
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!table[i].label)
            continue;
        if ((int)table[i].context != context) {
            context = (int)table[i].context;
            fprintf(f, ".SS \"%s\"\n", keys_context_title(table[i].context));
        }
        fputs(".TP\n.B ", f);
        roff(f, table[i].label);
        fputs("\n", f);
        roff(f, table[i].help);
        fputs(".\n", f);
    }
}
