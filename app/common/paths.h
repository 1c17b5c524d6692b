/* Where things are: the program's own data, the model, and the user's folders. Main thread;
 * paths_data and paths_home: any thread. */
#ifndef APP_COMMON_PATHS_H
#define APP_COMMON_PATHS_H

#include "engine/base/error.h"

#include <stddef.h>

/* A file of the program's own data: configs/BELOW in the tree, share/moetop/BELOW when installed.
 * ERR_IO. */
int paths_data(const char *below, char *out, size_t size, struct error *e);
/* The model to run: given (-m), else the bundled one (NULL: beside the executable's tree or under
 * the installed prefix), found from any directory. ERR_MODEL names where it was looked for. */
int paths_model(const char *given, char *out, size_t size, struct error *e);
/* $XDG_…_HOME/moetop or its fallback under the home directory; `kind` is CONFIG, STATE, CACHE or
 * DATA. "" when there is no home. */
void paths_home(const char *kind, char *out, size_t size);
/* The folder for caches: given (--cache-dir), NULL: the usual one, made when missing. NULL when
 * there is none to be had: caching is a comfort, never a condition. The first call decides, and
 * says what is wrong with the folder. */
const char *paths_cache(const char *given);
/* The file of typed lines in the state folder, which is made; empty where there is none, or where
 * something else bears its name. */
void paths_history(char *out, size_t size);

#endif
