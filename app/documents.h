/* Everything printed from the option table: --help, --print-config, configs/default.yaml, the man pages' tables, completions.
 * Main thread; they write to a stream and keep nothing. */
#ifndef APP_DOCUMENTS_H
#define APP_DOCUMENTS_H

#include "app/options.h"

/* --help, by group, at most `width` columns. */
void documents_help(FILE *f, int width);
/* --print-config: every value as YAML, each with its origin as a comment. */
void documents_config(const struct options *o, FILE *f);

#endif
