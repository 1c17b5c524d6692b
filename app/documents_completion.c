/* Completion scripts for bash, zsh and fish, from the option table. Main thread. */
#include "app/documents.h"

#include <string.h>

/* Calls fn for every spelling as typed: "--temp", "-n", ... */
static void each_spelling(const struct option *option, void (*fn)(FILE *f, const char *spelling), FILE *f)
{
    char text[80];

    snprintf(text, sizeof text, "--%s", option->name);
    fn(f, text);
    for (const char *p = option->others; *p;) {
        size_t n = strcspn(p, " ");

        snprintf(text, sizeof text, "%.*s", (int)n, p);
        fn(f, text);
        p += n + (p[n] == ' ');
    }
}

static void words_of(const struct option *option, FILE *f, char separator)
{
    char word[32];

    for (int i = 0; option_word(option, i, word, sizeof word); i++)
        fprintf(f, "%s%s", i ? (char[]){separator, 0} : "", word);
}

/* Text values that can be listed are in .words too: "cpu|gpu|hot". */
static bool has_words(const struct option *option)
{
    return *option->words && (option->type == OPTION_WORD || option->type == OPTION_TEXT);
}

/* ---- bash ---- */

static void spaced(FILE *f, const char *spelling)
{
    fprintf(f, "%s ", spelling);
}

static void piped(FILE *f, const char *spelling)
{
    fprintf(f, "|%s", spelling);
}

static void bash_cases(FILE *f, const struct option *option)
{
    fprintf(f, "    --%s", option->name);
    for (const char *p = option->others; *p;) {
        char text[64];
        size_t n = strcspn(p, " ");

        snprintf(text, sizeof text, "%.*s", (int)n, p);
        if (strcmp(text, "-?"))
            piped(f, text);
        p += n + (p[n] == ' ');
    }
}

static void bash(FILE *f)
{
    fputs("# bash completion for moetop, printed by moetop --completion bash\n"
          "_moetop() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "  COMPREPLY=()\n"
          "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "  case $prev in\n", f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];

        if (o->type == OPTION_FLAG)
            continue;
        bash_cases(f, o);
        if (has_words(o)) {
            fputs(") COMPREPLY=($(compgen -W '", f);
            words_of(o, f, ' ');
            fputs("' -- \"$cur\")); return;;\n", f);
        } else if (o->type == OPTION_PATH) {
            fputs(") compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n", f);
        } else {
            fputs(") return;;\n", f);
        }
    }
    fputs("  esac\n  COMPREPLY=($(compgen -W '", f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        each_spelling(&option_table[i], spaced, f);
        if (option_table[i].type == OPTION_FLAG && option_table[i].place & OPTION_FILE)
            fprintf(f, "--no-%s ", option_table[i].name);
    }
    fputs("' -- \"$cur\"))\n}\ncomplete -F _moetop moetop\n", f);
}

/* ---- zsh ---- */

/* Inside '…[…]': brackets, colons and quotes would end the text. */
static void zsh_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            fputc('\\', f);
        if (*text == '\'')
            fputs("'\\''", f);
        else if (*text != '`')
            fputc(*text, f);
    }
}

static void zsh(FILE *f)
{
    fputs("#compdef moetop\n# printed by moetop --completion zsh\n_arguments -s \\\n", f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        const char *p = o->others;

        fputs("  ", f);
        if (o->type == OPTION_LIST) {
            fputs("'*'", f);     /* may be repeated */
        } else if (*p) {
            fputs("'(", f);
            each_spelling(o, spaced, f);
            fputs(")'", f);
        }
        /* One set of spellings, one description: {--temp,--temperature}'[…]:X:' */
        fprintf(f, "%s--%s", *p ? "{" : "", o->name);
        while (*p) {
            size_t n = strcspn(p, " ");

            fprintf(f, ",%s%.*s%s", strncmp(p, "-?", n) ? "" : "'", (int)n, p, strncmp(p, "-?", n) ? "" : "'");
            p += n + (p[n] == ' ');
        }
        fprintf(f, "%s'[", *o->others ? "}" : "");
        zsh_text(f, o->help);
        fputs("]", f);
        if (o->type != OPTION_FLAG) {
            fputc(':', f);
            zsh_text(f, o->argument);
            fputc(':', f);
            if (has_words(o)) {
                fputc('(', f);
                words_of(o, f, ' ');
                fputc(')', f);
            } else if (o->type == OPTION_PATH) {
                fputs("_files", f);
            }
        }
        fputs(i + 1 < OPTION_COUNT ? "' \\\n" : "'\n", f);
    }
}

/* ---- fish ---- */

static void fish_spelling(FILE *f, const char *spelling)
{
    if (spelling[1] == '-')
        fprintf(f, " -l %s", spelling + 2);
    else if (!spelling[2])
        fprintf(f, " -s '%s'", spelling + 1);
    else
        fprintf(f, " -o %s", spelling + 1);
}

static void fish(FILE *f)
{
    fputs("# fish completion for moetop, printed by moetop --completion fish\ncomplete -c moetop -f\n", f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];

        fputs("complete -c moetop", f);
        each_spelling(o, fish_spelling, f);
        if (o->type == OPTION_PATH)
            fputs(" -r -F", f);
        else if (has_words(o)) {
            fputs(" -x -a '", f);
            words_of(o, f, ' ');
            fputc('\'', f);
        } else if (o->type != OPTION_FLAG) {
            fputs(" -x", f);
        }
        fputs(" -d '", f);
        for (const char *p = o->help; *p; p++) {
            if (*p == '\'' || *p == '\\')
                fputc('\\', f);
            fputc(*p, f);
        }
        fputs("'\n", f);
    }
}

void documents_completion(enum documents_shell shell, FILE *f)
{
    switch (shell) {
    case SHELL_BASH: bash(f); break;
    case SHELL_ZSH: zsh(f); break;
    case SHELL_FISH: fish(f); break;
    }
}
