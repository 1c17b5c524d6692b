/* The models below a folder: GGUF files (of split ones only the first part) and folders with a
 * config.json. Found by name only: nothing is opened, so damaged ones are listed too. Any thread.
 */
#ifndef APP_COMMON_MODEL_FILES_H
#define APP_COMMON_MODEL_FILES_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MODEL_FILES_MOST 10000

struct model_files {
    char **paths; /* sorted at the end, without duplicates */
    size_t n;
    /* private */
    size_t room;
    struct model_file_id {
        dev_t device;
        ino_t number;
    } * found;
};

/* Whether the path names a folder that is not a model itself, but may contain some. */
bool model_files_folder(const char *path);
/* Adds the path, if it is a model, or the models below it: hidden files and folders are skipped,
 * and so is what cannot be listed below the path itself. {0} before; release in any case. ERR_IO:
 * no such path, or it cannot be listed; ERR_MODEL: more than MODEL_FILES_MOST; ERR_MEMORY. */
int model_files_find(struct model_files *f, const char *path, struct error *e);
void model_files_release(struct model_files *f);

#endif
