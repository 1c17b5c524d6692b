/* Manual pages: hand-written text with markers that are replaced by tables. Main thread. Templates
 * rather than one big printf: text stays text, and an unknown marker is a build error. */
#include "app/common/wrong_device.h"
#include "app/headless/documents.h"

#include "app/chat/commands/commands.h"
#include "app/serve/api/routes.h"
#include "engine/placement/planner.h"
#include "ui/screen/key_help.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Text to roff: hyphens that can be copied, no accidental requests, `marked` words bold. */
static void roff(FILE *f, const char *text)
{
    bool bold = false;

    if (*text == '.' || *text == '\'')
        fputs("\\&", f);
    for (; *text; text++)
        switch (*text) {
        case '-': fputs("\\-", f); break;
        case '\\': fputs("\\e", f); break;
        case '~': fputs("\\(ti", f); break;
        case '^': fputs("\\(ha", f); break;
        case '"': fputs("\\(dq", f); break;
        case '\'': fputs("\\(aq", f); break;
        case '`': fputs((bold = !bold) ? "\\fB" : "\\fR", f); break;
        default: fputc(*text, f);
        }
}

static void sentence(FILE *f, const char *help)
{
    char first[2] = {(char)toupper((unsigned char)*help), 0};

    roff(f, first);
    roff(f, help + 1);
    fputs(".\n", f);
}

/* The allowed values, from the option's row. */
static void domain(FILE *f, const struct option *option)
{
    char word[32];

    if (option->type == OPTION_WORD) {
        for (int i = 0; option_word(option, i, word, sizeof word); i++) {
            fputs(i ? ", \\fB" : "One of \\fB", f);
            roff(f, word);
            fputs("\\fR", f);
        }
        fputs(".\n", f);
    } else if (option->type == OPTION_SIZE) {
        fputs("A size such as 4096, 600M or 1.5G (binary units).\n", f);
    }
    if (option->type != OPTION_FLAG && *option->fallback) {
        fputs("The default is \\fB", f);
        roff(f, option->fallback);
        fputs("\\fR.\n", f);
    } else if (option->type == OPTION_FLAG && !strcmp(option->fallback, "true")) {
        fputs("This is the default; \\fB\\-\\-no\\-", f);
        roff(f, option->name);
        fputs("\\fR turns it off.\n", f);
    }
}

static void print_options(FILE *f)
{
    char spelled[160];

    for (int g = 0; g < GROUP_COUNT; g++) {
        bool any = false;

        for (int i = 0; i < OPTION_COUNT; i++) {
            const struct option *o = &option_table[i];

            if (o->group != (enum option_group)g)
                continue;
            if (!any)
                fprintf(f, ".SS \"%s\"\n", option_group_heading(o->group));
            any = true;
            documents_spellings(o, false, spelled, sizeof spelled);
            fputs(".TP\n\\fB", f);
            roff(f, spelled);
            fputs("\\fR", f);
            if (*o->argument) {
                fputs(" \\fI", f);
                roff(f, o->argument);
                fputs("\\fR", f);
            }
            fputc('\n', f);
            sentence(f, o->help);
            domain(f, o);
            if (*o->more) {
                roff(f, o->more);
                fputc('\n', f);
            }
        }
    }
}

static void print_variables(FILE *f)
{
    char variable[64];

    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!(option_table[i].place & OPTION_FILE))
            continue;
        option_variable(&option_table[i], variable, sizeof variable);
        fprintf(f, ".TP\n.B %s\nThe value of \\fB\\-\\-", variable);
        roff(f, option_table[i].name);
        fputs("\\fR.\n", f);
    }
}

/* The keys of the configuration file. */
static void print_settings(FILE *f)
{
    static const char *const kinds[] = {
        [OPTION_FLAG] = "true or false", [OPTION_INT] = "whole number",
        [OPTION_REAL] = "number",        [OPTION_SEED] = "whole number",
        [OPTION_SIZE] = "size",          [OPTION_WORD] = "word",
        [OPTION_TEXT] = "text",          [OPTION_PATH] = "file name",
        [OPTION_LIST] = "list of texts",
    };

    for (int g = 0; g < GROUP_COUNT; g++) {
        bool any = false;

        for (int i = 0; i < OPTION_COUNT; i++) {
            const struct option *o = &option_table[i];

            if (o->group != (enum option_group)g || !(o->place & OPTION_FILE))
                continue;
            if (!any)
                fprintf(f, ".SS \"%s\"\n", option_group_heading(o->group));
            any = true;
            fputs(".TP\n\\fB", f);
            roff(f, o->name);
            fprintf(f, "\\fR (%s%s)\n", kinds[o->type],
                    (o->place & OPTION_MODEL) == OPTION_MODEL ? "; also beside a model" : "");
            sentence(f, o->help);
            if (o->type == OPTION_INT || o->type == OPTION_REAL)
                fprintf(f, "From %s%.10g to %.10g%s%s.\n", o->min < 0 ? "\\-" : "",
                        o->min < 0 ? -o->min : o->min, o->max, *o->words ? ", or " : "", o->words);
            domain(f, o);
        }
    }
}

/* One paragraph per exit status; codes with the same status share a paragraph. */
static void print_exit(FILE *f)
{
    static const struct {
        int code;
        const char *meaning;
    } rows[] = {
#define X(name, exit_code, word, text) {exit_code, text},
        ERROR_TABLE(X)
#undef X
            {WRONG_DEVICE_EXIT, WRONG_DEVICE_MEANING},
    };
    const size_t n = sizeof rows / sizeof *rows;

    fputs(".TP\n.B 0\nDone.\n", f);
    for (int code = 1; code < 256; code++) {
        bool any = false;

        for (size_t i = 0; i < n; i++) {
            if (rows[i].code != code)
                continue;
            if (!any)
                fprintf(f, ".TP\n.B %d\n", code);
            fputs(any ? "; " : "", f);
            if (any)
                roff(f, rows[i].meaning);
            else
                fprintf(f, "%c%s", toupper((unsigned char)rows[i].meaning[0]), rows[i].meaning + 1);
            any = true;
        }
        if (any)
            fputs(".\n", f);
    }
}

static void print_placements(FILE *f)
{
    for (int i = 0; i < n_planners; i++) {
        fputs(".TP\n.B ", f);
        roff(f, planners[i].syntax);
        fputc('\n', f);
        sentence(f, planners[i].help);
    }
}

static void print_routes(FILE *f)
{
    const struct route *route;

    for (size_t i = 0; (route = route_at(i)); i++) {
        fputs(".TP\n.B ", f);
        roff(f, route->method);
        fputc(' ', f);
        roff(f, route->path);
        fputc('\n', f);
        sentence(f, route->help);
    }
}

static const struct {
    const char *marker;
    void (*print)(FILE *f);
} markers[] = {
    {"@OPTIONS@", print_options},   {"@VARIABLES@", print_variables},
    {"@SETTINGS@", print_settings}, {"@EXIT@", print_exit},
    {"@KEYS@", keys_print_man},     {"@PLACEMENTS@", print_placements},
    {"@ROUTES@", print_routes},     {"@COMMANDS@", chat_commands_print_man},
};

static int marker_line(const char *line, FILE *f)
{
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
        if (!strncmp(line, markers[i].marker, strlen(markers[i].marker))) {
            markers[i].print(f);
            return 0;
        }
    return -1;
}

int documents_man(const char *template_path, FILE *f, struct error *e)
{
    FILE *in = fopen(template_path, "re");
    char line[4096];
    int rc = 0;

    if (!in)
        return error_set(e, ERR_IO, "%s: %s", template_path, strerror(errno));
    while (rc == 0 && fgets(line, sizeof line, in)) {
        char *version = strstr(line, "@VERSION@");

        if (version)
            fprintf(f, "%.*s%s%s", (int)(version - line), line, MOETOP_VERSION, version + 9);
        else if (*line != '@')
            fputs(line, f);
        else if (marker_line(line, f) < 0)
            rc = error_set(e, ERR_USAGE, "%s: no table for the line %s", template_path, line);
    }
    if (rc == 0 && ferror(in))
        rc = error_set(e, ERR_IO, "%s: %s", template_path, strerror(errno));
    fclose(in);
    return rc;
}
