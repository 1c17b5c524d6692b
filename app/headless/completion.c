/* Completion scripts for bash, zsh and fish, from the option table. Main thread. */
#include "app/headless/documents.h"

#include "app/bench/args.h"
#include "app/setup/completion_values.h"

#include <string.h>

/* Calls fn for every spelling as typed: "--temp", "-n", ... */
static void each_spelling(const struct option *option, void (*fn)(FILE *f, const char *spelling),
                          FILE *f)
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

/* The values that a script offers. Values in the user's own folder are looked up when Tab is
 * pressed. */
struct values {
    char words[2048]; /* with a space behind each */
    int flags;
    const char *folder;
};

static void put_value(void *ctx, const char *value)
{
    struct values *v = ctx;
    size_t n = strlen(v->words);

    snprintf(v->words + n, sizeof v->words - n, "%s ", value);
}

static void values_of(const struct option *option, struct values *v)
{
    v->words[0] = 0;
    v->flags = values_each(option, false, put_value, v);
    v->folder = values_folder(option);
}

/* "--quantize TYPE IN OUT" takes three at a time; those after the first are files. */
static int values_taken(const struct option *option)
{
    int n = 1;

    for (const char *p = option->argument; *p; p++)
        n += *p == ' ';
    return n;
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

static void bash_values(FILE *f, const struct option *option)
{
    struct values v;

    values_of(option, &v);
    fputs(") ", f);
    if (*v.words) {
        fprintf(f, "words='%s'; ", v.words);
        if (v.folder)
            fprintf(f, "words+=$(_moetop_own %s); ", v.folder);
        if (v.flags & VALUES_COMMAS)
            fputs("compopt -o nospace; [[ $cur == *,* ]] && before=${cur%,*},; ", f);
        fputs("COMPREPLY=($(compgen -P \"$before\" -W \"$words\" -- \"${cur##*,}\")); "
              "[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace; ",
              f);
    }
    if (v.flags & VALUES_FILES)
        fputs("(( ${#COMPREPLY[@]} )) || compopt -o filenames; COMPREPLY+=($(compgen -f -- "
              "\"$cur\")); ",
              f);
    fputs("return;;\n", f);
}

static void bash_spellings(FILE *f)
{
    const char *ours, *theirs;

    for (int i = 0; i < OPTION_COUNT; i++)
        for (int k = 2; k <= values_taken(&option_table[i]); k++)
            fprintf(f,
                    "  (( COMP_CWORD > %d )) && [[ ${COMP_WORDS[COMP_CWORD-%d]} == --%s ]] && "
                    "prev=--output\n",
                    k, k, option_table[i].name);
    fputs("  [[ \" ${COMP_WORDS[*]} \" == *' --bench '* ]] && case $prev in\n", f);
    for (int i = 0; (theirs = bench_spelling(i, &ours)); i++)
        fprintf(f, "    %s) prev=%s;;\n", theirs, ours);
    fputs("  esac\n", f);
}

static void bash(FILE *f)
{
    fputs("# bash completion for moetop, printed by moetop --completion bash\n"
          "_moetop_own() {\n"
          "  local f\n"
          "  for f in \"${XDG_CONFIG_HOME:-$HOME/.config}/moetop/$1\"/*.yaml; do\n"
          "    f=${f##*/}; [[ $f == '*.yaml' ]] || printf '%s ' \"${f%.yaml}\"\n"
          "  done\n"
          "}\n"
          "_moetop() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words before=\n"
          "  COMPREPLY=()\n"
          "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then "
          "prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n",
          f);
    bash_spellings(f);
    fputs("  case $prev in\n", f);
    for (int i = 0; i < OPTION_COUNT; i++)
        if (option_table[i].type != OPTION_FLAG) {
            bash_cases(f, &option_table[i]);
            bash_values(f, &option_table[i]);
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

/* Inside '…[…]': escapes brackets, colons and quotes, which would end the text. */
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

/* The action behind "…:X:": what is offered. */
static void zsh_values(FILE *f, const struct option *option)
{
    struct values v;
    bool helped;

    values_of(option, &v);
    helped = v.folder || v.flags & VALUES_COMMAS || strchr(v.words, ':');
    if (helped)
        fprintf(f, "{_moetop_values %s %s ",
                v.flags & VALUES_COMMAS  ? "-c"
                : v.flags & VALUES_FILES ? "-f"
                                         : "--",
                v.folder ? v.folder : "-");
    if (*v.words) {
        fputs(helped ? "" : "(", f);
        zsh_text(f, v.words);
        fputs(helped ? "}" : ")", f);
    } else if (v.flags & VALUES_FILES) {
        fputs("_files", f);
    }
    for (int i = 1; i < values_taken(option); i++)
        fputs(":FILE:_files", f);
}

static void zsh_helpers(FILE *f)
{
    const char *theirs, *ours;

    /* kind, folder of the user's own, words: those that end with a colon take no blank */
    fputs("_moetop_values() {\n"
          "  local kind=$1 folder=$2\n"
          "  shift 2\n"
          "  local -a all open whole\n"
          "  all=($@)\n"
          "  [[ $folder == - ]] || "
          "all+=(${XDG_CONFIG_HOME:-$HOME/.config}/moetop/$folder/*.yaml(N:t:r))\n"
          "  if [[ $kind == -c ]]; then compset -P '*,'; compadd -S '' -a all; return; fi\n"
          "  open=(${(M)all:#*:})\n"
          "  whole=(${all:#*:})\n"
          "  compadd -S '' -a open\n"
          "  compadd -a whole\n"
          "  [[ $kind == -f ]] && _files\n"
          "}\n"
          "if (( $words[(I)--bench] )); then\n"
          "  case $words[CURRENT-1] in\n",
          f);
    for (int i = 0; (theirs = bench_spelling(i, &ours)); i++)
        fprintf(f, "    %s) words[CURRENT-1]=%s;;\n", theirs, ours);
    fputs("  esac\nfi\n", f);
}

static void zsh(FILE *f)
{
    fputs("#compdef moetop\n# printed by moetop --completion zsh\n", f);
    zsh_helpers(f);
    fputs("_arguments \\\n", f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        const char *p = o->others;

        fputs("  ", f);
        if (o->type == OPTION_LIST) {
            fputs("'*'", f); /* may be repeated */
        } else if (*p) {
            fputs("'(", f);
            each_spelling(o, spaced, f);
            fputs(")'", f);
        }
        /* One set of spellings, one description: {--temp,--temperature}'[…]:X:' */
        fprintf(f, "%s--%s", *p ? "{" : "", o->name);
        while (*p) {
            size_t n = strcspn(p, " ");

            fprintf(f, ",%s%.*s%s", strncmp(p, "-?", n) ? "" : "'", (int)n, p,
                    strncmp(p, "-?", n) ? "" : "'");
            p += n + (p[n] == ' ');
        }
        fprintf(f, "%s'[", *o->others ? "}" : "");
        zsh_text(f, o->help);
        fputs("]", f);
        if (o->type != OPTION_FLAG) {
            fputc(':', f);
            zsh_text(f, o->argument);
            fputc(':', f);
            zsh_values(f, o);
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

static void fish_values(FILE *f, const struct option *option)
{
    bool commas;
    struct values v;

    values_of(option, &v);
    commas = v.flags & VALUES_COMMAS;
    fputs(v.flags & VALUES_FILES ? " -r -F" : " -x", f);
    if (!*v.words)
        return;
    fprintf(f, " -a '%s%s", commas ? "(__fish_append , " : "", v.words);
    if (v.folder)
        fprintf(f, "(__moetop_own %s)", v.folder);
    fputs(commas ? ")'" : "'", f);
}

/* With --bench the short flags have llama-bench's meanings, and further values of an option with
 * several are files. */
static void fish_exceptions(FILE *f)
{
    const char *theirs, *ours;

    for (int i = 0; (theirs = bench_spelling(i, &ours)); i++) {
        const struct option *o = options_find(ours);

        if (!o || o->type == OPTION_FLAG)
            continue;
        fputs("complete -c moetop -n '__fish_contains_opt bench'", f);
        fish_spelling(f, theirs);
        fish_values(f, o);
        fprintf(f, " -d '%s'\n", o->name);
    }
    for (int i = 0; i < OPTION_COUNT; i++)
        if (values_taken(&option_table[i]) > 1)
            fprintf(f, "complete -c moetop -n '__fish_contains_opt %s' -F\n", option_table[i].name);
}

static void fish(FILE *f)
{
    fputs("# fish completion for moetop, printed by moetop --completion fish\n"
          "function __moetop_own\n"
          "  set -l home $XDG_CONFIG_HOME\n"
          "  test -n \"$home\"; or set home ~/.config\n"
          "  for f in $home/moetop/$argv[1]/*.yaml; basename $f .yaml; end\n"
          "end\n"
          "complete -c moetop -f\n",
          f);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];

        fputs("complete -c moetop", f);
        each_spelling(o, fish_spelling, f);
        if (o->type != OPTION_FLAG)
            fish_values(f, o);
        fputs(" -d '", f);
        for (const char *p = o->help; *p; p++) {
            if (*p == '\'' || *p == '\\')
                fputc('\\', f);
            fputc(*p, f);
        }
        fputs("'\n", f);
    }
    fish_exceptions(f);
}

void documents_completion(enum documents_shell shell, FILE *f)
{
    switch (shell) {
    case SHELL_BASH: bash(f); break;
    case SHELL_ZSH: zsh(f); break;
    case SHELL_FISH: fish(f); break;
    }
}
