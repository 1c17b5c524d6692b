/* The lines of --expert-edit FILE: a YAML list of strings, or one under the key expert_edits, as
 * expert_edits_read takes them. Any thread. */
#ifndef APP_LAB_EDIT_FILE_H
#define APP_LAB_EDIT_FILE_H

#include "engine/base/error.h"

#include <stddef.h>

struct edit_lines {
    char **lines;
    size_t n;
};

/* ERR_IO, ERR_MEMORY, ERR_USAGE with file:line:column. What the lines say is not checked: that
 * takes a model. */
int edit_file_read(struct edit_lines *out, const char *path, struct error *e);
int edit_file_parse(struct edit_lines *out, const char *text, size_t size, const char *name,
                    struct error *e);
void edit_lines_release(struct edit_lines *l);

#endif
