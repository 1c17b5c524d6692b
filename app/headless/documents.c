/* --help, --print-config and configs/default.yaml. Main thread. All texts are from the option
 * table, so they always match the parser. */
#include "app/headless/documents.h"

#include <string.h>

/* "-n, --n-predict, --predict N" */
void documents_spellings(const struct option *option, bool argument, char *out, size_t size)
{
    size_t at = 0;

    *out = 0;
    for (const char *p = option->others; *p && at < size;) {
        size_t n = strcspn(p, " ");

        if (p[1] != '-')
            at += (size_t)snprintf(out + at, size - at, "%.*s, ", (int)n, p);
        p += n + (p[n] == ' ');
    }
    at += (size_t)snprintf(out + at, at < size ? size - at : 0, "--%s", option->name);
    for (const char *p = option->others; *p && at < size;) {
        size_t n = strcspn(p, " ");

        if (p[1] == '-')
            at += (size_t)snprintf(out + at, size - at, ", %.*s", (int)n, p);
        p += n + (p[n] == ' ');
    }
    if (argument && *option->argument && at < size)
        snprintf(out + at, size - at, " %s", option->argument);
}

/* Writes text wrapped to width, continuation lines indented. */
static void wrapped(FILE *f, const char *text, int column, int indent, int width)
{
    while (*text) {
        int n = (int)strcspn(text, " ");

        if (column + 1 + n > width && column > indent) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', f);
            column++;
        }
        fprintf(f, "%.*s", n, text);
        column += n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', f);
}

/* Of an action's argument "no", "none" and 0 say that the action was not asked for: no default to
 * tell of. */
static bool has_default(const struct option *option)
{
    static const char *const nothing[] = {"", "no", "none", "0"};

    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        if (strcmp(option->fallback, nothing[i]) == 0 && (i == 0 || option->place == OPTION_LINE))
            return false;
    return option->type != OPTION_FLAG;
}

static void help_row(FILE *f, const struct option *option, int width)
{
    enum { INDENT = 32 };
    char left[120], text[512];
    int n;

    documents_spellings(option, true, left, sizeof left);
    n = fprintf(f, "  %s", left);
    if (n > INDENT - 2)
        fprintf(f, "\n%*s", INDENT, "");
    else
        fprintf(f, "%*s", INDENT - n, "");
    n = snprintf(text, sizeof text, "%s", option->help);
    if (has_default(option) && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, " (default: %s)", option->fallback);
    wrapped(f, text, INDENT, INDENT, width);
}

void documents_help(FILE *f, int width)
{
    fprintf(
        f,
        "moetop %s: chat with a mixture-of-experts language model and watch its experts work\n\n"
        "Usage: moetop [OPTION...]             chat with the bundled model, or the one of -m\n"
        "       moetop -p TEXT [OPTION...]     print one answer\n",
        MOETOP_VERSION);
    for (int g = 0; g < GROUP_COUNT; g++) {
        bool any = false;

        for (int i = 0; i < OPTION_COUNT; i++) {
            if (option_table[i].group != (enum option_group)g)
                continue;
            if (!any)
                fprintf(f, "\n%s\n", option_group_heading((enum option_group)g));
            any = true;
            help_row(f, &option_table[i], width);
        }
    }
    fprintf(f, "\nEvery option with a value can also be set in the environment (--top-k: "
               "MOETOP_TOP_K) and, by its long name, in\n"
               "~/.config/moetop/config.yaml. See moetop(1) and moetop.yaml(5).\n");
}

/* ---- configuration as YAML ---- */

void documents_yaml_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p == '\n')
            fputs("\\n", f);
        else if (*p == '\t')
            fputs("\\t", f);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(f, "\\x%02x", *p);
        else
            fputc(*p, f);
    }
    fputc('"', f);
}

/* "key: value" without the line end; an unset text is null. */
static int yaml_row(FILE *f, const struct options *o, const struct option *option)
{
    const char *field = (const char *)o + option->offset;
    char value[256];
    int n = fprintf(f, "%s: ", option->name);

    if (option->type == OPTION_TEXT || option->type == OPTION_PATH) {
        const char *text = *(char *const *)field;

        if (text)
            documents_yaml_text(f, text);
        else
            fputs("null", f);
        return n + (text ? (int)strlen(text) + 2 : 4);
    }
    if (option->type == OPTION_LIST) {
        const struct option_list *l = (const struct option_list *)field;

        fputc('[', f);
        for (size_t i = 0; i < l->n; i++) {
            fputs(i ? ", " : "", f);
            documents_yaml_text(f, l->items[i]);
        }
        fputc(']', f);
        return n + 2;
    }
    option_value(o, option, value, sizeof value);
    return n + fprintf(f, "%s", value);
}

void documents_config(const struct options *o, FILE *f)
{
    fprintf(f, "# moetop %s: every setting and where it came from\n", MOETOP_VERSION);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *option = &option_table[i];
        char origin[512];
        int n;

        if (!(option->place & OPTION_FILE))
            continue;
        n = yaml_row(f, o, option);
        option_origin_text(o, option, origin, sizeof origin);
        fprintf(f, "%*s # %s\n", n < 34 ? 34 - n : 0, "", origin);
    }
}

/* A comment of full sentences, at most 100 columns; the manual's `marks` are removed. */
static void yaml_comment(FILE *f, const char *text)
{
    char plain[1200];
    size_t n = 0;

    for (; *text && n < sizeof plain - 1; text++)
        if (*text != '`')
            plain[n++] = *text;
    plain[n] = 0;
    for (const char *p = plain; *p;) {
        size_t len = strlen(p), fit = len;

        if (len > 96)
            for (fit = 96; fit > 1 && p[fit] != ' ';)
                fit--;
        fprintf(f, "# %.*s\n", (int)fit, p);
        p += fit + strspn(p + fit, " ");
    }
}

static void default_row(FILE *f, const struct options *o, const struct option *option)
{
    char words[256];
    size_t at = 0;
    char variable[64];

    snprintf(words, sizeof words, "%c%s.",
             option->help[0] >= 'a' && option->help[0] <= 'z' ? option->help[0] - 32
                                                              : option->help[0],
             option->help + 1);
    yaml_comment(f, words);
    if (*option->more)
        yaml_comment(f, option->more);
    *words = 0;
    for (int i = 0; option->type == OPTION_WORD && at < sizeof words; i++) {
        char word[32];

        if (!option_word(option, i, word, sizeof word))
            break;
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%s", i ? ", " : "One of ", word);
    }
    if (at) {
        fprintf(f, "# %s.\n", words);
    } else if (option->type == OPTION_INT || option->type == OPTION_REAL) {
        fprintf(f, "# A number from %.10g to %.10g%s%s.\n", option->min, option->max,
                *option->words ? ", or " : "", option->words);
    }
    option_variable(option, variable, sizeof variable);
    fprintf(f, "# Flag --%s, environment %s%s.\n", option->name, variable,
            (option->place & OPTION_MODEL) == OPTION_MODEL ? ", allowed beside a model" : "");
    yaml_row(f, o, option);
    fputs("\n\n", f);
}

int documents_default_config(FILE *f, struct error *e)
{
    struct options o;
    int rc = options_init(&o, e);

    if (rc < 0)
        return rc;
    fputs("# Every setting of moetop at its default. Copy what you want to change to "
          "~/.config/moetop/config.yaml; see moetop.yaml(5).\n"
          "# Printed from the option table (make docs): change app/options/options.def, not this "
          "file.\n",
          f);
    for (int g = 0; g < GROUP_COUNT; g++) {
        bool any = false;

        for (int i = 0; i < OPTION_COUNT; i++) {
            if (option_table[i].group != (enum option_group)g ||
                !(option_table[i].place & OPTION_FILE))
                continue;
            if (!any)
                fprintf(f, "\n# ---- %s ----\n\n", option_group_heading((enum option_group)g));
            any = true;
            default_row(f, &o, &option_table[i]);
        }
    }
    options_release(&o);
    return 0;
}
