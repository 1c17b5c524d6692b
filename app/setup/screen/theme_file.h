/* Themes from YAML files: roles of ui/theme.h by name, for one or several depths. UI thread. */
#ifndef APP_SETUP_SCREEN_THEME_FILE_H
#define APP_SETUP_SCREEN_THEME_FILE_H

#include "engine/base/error.h"
#include "ui/theme.h"

/* name: a theme of configs/themes or of the user's configuration folder, or a path. t keeps its
 * depth; roles missing from the file keep their built-in colours. Errors are "file:line:column: …".
 * ERR_USAGE, ERR_IO; t is then unchanged. */
/* The same from memory; name is what errors call it. ERR_USAGE, ERR_MEMORY. */
int theme_parse(struct theme *t, const char *text, size_t n, const char *name, struct error *e);
int theme_file_load(struct theme *t, const char *name, struct error *e);

#endif
