/* See key_help.h. */
#include "ui/screen/key_help.h"
#include "ui/keys.h"
#include "ui/panels/panel.h"

#include <string.h>

#define ALL ~0u

static const char *context_title(enum key_context context)
{
    return context == KEYS_CHAT     ? "In the chat"
           : context == KEYS_PANEL  ? "In a panel"
           : context == KEYS_SERVER ? "On a server's dashboard"
                                    : "While an adapter is trained";
}

/* Name of an action's target by index; NULL: no more. */
static const char *indexed_name(enum action a, int index)
{
    if (a == ACTION_PLACE)
        return index < KEYS_PLANS ? keys_plans[index] : NULL;
    return a == ACTION_TOGGLE && index < panel_toggles() ? panels[index]->name : NULL;
}

/* The keys of a row; those that toggle panels only as many as there are panels. */
static void label_make(const struct key_binding *k, char *out, size_t size)
{
    int last = panel_toggles() < 9 ? panel_toggles() : 9;

    if (k->action == ACTION_TOGGLE)
        snprintf(out, size, "Alt-1 to Alt-%d", last);
    else
        snprintf(out, size, "%s", k->label);
}

/* "show or hide a panel: speed, memory" */
static void help_make(const struct key_binding *k, char *out, size_t size)
{
    const char *name;

    snprintf(out, size, "%s", k->help);
    for (int i = 0; (name = indexed_name(k->action, i)); i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? ", " : ": ", name);
}

/* Calls title for each of the contexts (bits) and row for each row of the manual, in the order of
 * the table. */
static void each_row(FILE *f, unsigned contexts,
                     void (*title)(FILE *f, const char *text, bool first),
                     void (*row)(FILE *f, const char *label, const char *help))
{
    int n, context = -1;
    bool first = true;
    const struct key_binding *k = keys_table(&n);

    for (int i = 0; i < n; i++, k++) {
        char label[64], help[512];

        if (!k->label || !(contexts >> k->context & 1))
            continue;
        if ((int)k->context != context) {
            context = (int)k->context;
            title(f, context_title(k->context), first);
            first = false;
        }
        label_make(k, label, sizeof label);
        help_make(k, help, sizeof help);
        row(f, label, help);
    }
}

static void help_title(FILE *f, const char *text, bool first)
{
    fprintf(f, "%s%s\n", first ? "" : "\n", text);
}

static void help_row(FILE *f, const char *label, const char *help)
{
    fprintf(f, "  %-16s %s\n", label, help);
}

void keys_print_help(FILE *f, enum key_context screen)
{
    bool chat = screen == KEYS_CHAT;

    if (!chat)
        each_row(f, 1u << screen, help_title, help_row);
    if (!chat)
        fputc('\n', f);
    each_row(f, chat ? ALL : 1u << KEYS_PANEL, help_title, help_row);
}

/* Roff interprets a leading dot or apostrophe as a request, and a backslash as an escape. */
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

static void man_title(FILE *f, const char *text, bool first)
{
    fprintf(f, "%s.SS \"%s\"\n", first ? ".SH KEYS\n" : "", text);
}

static void man_row(FILE *f, const char *label, const char *help)
{
    fputs(".TP\n.B ", f);
    roff(f, label);
    fputs("\n", f);
    roff(f, help);
    fputs(".\n", f);
}

void keys_print_man(FILE *f)
{
    each_row(f, ALL, man_title, man_row);
}
