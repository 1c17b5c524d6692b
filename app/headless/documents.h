/* Everything printed from the tables: --help, --print-config, configs/default.yaml, the manual
 * pages, completions. Main thread; they write to a stream and keep nothing. `make docs` writes the
 * committed ones, tests/check_docs.c compares them. */
#ifndef APP_HEADLESS_DOCUMENTS_H
#define APP_HEADLESS_DOCUMENTS_H

#include "app/options/options.h"

/* --help, by group, at most `width` columns. */
void documents_help(FILE *f, int width);
/* --print-config: every value as YAML, each with its origin as a comment. */
void documents_config(const struct options *o, FILE *f);
/* configs/default.yaml: every key with its description as a comment, at its default. ERR_MEMORY. */
int documents_default_config(FILE *f, struct error *e);
/* A manual page: the template with its lines @OPTIONS@, @VARIABLES@, @KEYS@, @SETTINGS@,
 * @PLACEMENTS@, @COMMANDS@ and @EXIT@ replaced by tables. ERR_IO, ERR_USAGE (unknown marker). */
int documents_man(const char *template_path, FILE *f, struct error *e);

enum documents_shell { SHELL_BASH, SHELL_ZSH, SHELL_FISH };
void documents_completion(enum documents_shell shell, FILE *f);

/* Helpers for the writers above. "-n, --n-predict, --predict N" (without the argument if `argument`
 * is false). */
void documents_spellings(const struct option *option, bool argument, char *out, size_t size);
void documents_yaml_text(FILE *f, const char *text);

#endif
