/* Parts of names: of files, and of tensors, which are built alike. Pure. */
#ifndef ENGINE_BASE_PATH_H
#define ENGINE_BASE_PATH_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What stands behind the last slash. */
static inline const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The folder it stands in: "." of a name alone, "/" at the top. */
static inline void path_folder(const char *path, char *out, size_t size)
{
    size_t n = (size_t)(path_name(path) - path);

    snprintf(out, size, "%.*s", n > 1 ? (int)n - 1 : 1, n ? path : ".");
}

/* Bytes in front of the ending; 0: the name has another one (or ending is NULL), or nothing in
 * front of it. */
static inline size_t path_stem(const char *name, const char *ending)
{
    size_t n = strlen(name), m = ending ? strlen(ending) : n;

    return n > m && strcmp(name + n - m, ending) == 0 ? n - m : 0;
}

#endif
