/* The models below a folder: GGUF files, of those that are split the first part alone, and folders
 * with a config.json. Found by name: nothing is opened, so a damaged one is found as well. Any
 * thread. */
#ifndef APP_COMMON_MODEL_FILES_H
#define APP_COMMON_MODEL_FILES_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MODEL_FILES_MOST 10000

struct model_files {
    char **paths; /* sorted at the end, each file and folder once, whatever leads there */
    size_t n;
    /* private */
    size_t room;
    struct model_file_id {
        dev_t device;
        ino_t number;
    } *found;
};

/* Whether the path names a folder that is no model itself, but may hold some. */
bool model_files_folder(const char *path);
/* Adds what the path is, or what is below it: files and folders whose name begins with a point are
 * passed over, and so is what cannot be listed below the path itself. {0} before; release in any
 * case. ERR_IO: no such path, or it cannot be listed; ERR_MODEL: more than MODEL_FILES_MOST;
 * ERR_MEMORY. */
int model_files_find(struct model_files *f, const char *path, struct error *e);
void model_files_release(struct model_files *f);

#endif
