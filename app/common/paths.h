/* Where things are: the program's own data, the model, and the user's folders. Main thread;
 * paths_data and paths_home: any thread. */
#ifndef APP_COMMON_PATHS_H
#define APP_COMMON_PATHS_H

#include "engine/base/error.h"

#include <stddef.h>

/* A file of the program's own data: configs/BELOW in the tree, share/moetop/BELOW when installed.
 * ERR_IO. */
int paths_data(const char *below, char *out, size_t size, struct error *e);
/* The model to run: given (-m), else the bundled one (NULL), which is found beside the executable's
 * tree or under the installed prefix, from any directory. ERR_MODEL names where it was searched. */
int paths_model(const char *given, char *out, size_t size, struct error *e);
/* $XDG_…_HOME/moetop or its fallback under the home directory; `kind` is CONFIG, STATE, CACHE or
 * DATA. "" when there is no home. */
void paths_home(const char *kind, char *out, size_t size);
/* The cache folder: given (--cache-dir), NULL: the usual one, created if missing. NULL if none is
 * usable: caching is optional. Decided by the first call, which also reports problems of the
 * folder. */
const char *paths_cache(const char *given);
/* The input history file in the state folder, which is created; empty if there is none, or if the
 * name is taken by something that is not a file. */
void paths_history(char *out, size_t size);

#endif
