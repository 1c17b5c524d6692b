/* Writes a file to a temporary name, piece by piece, and renames it to its target only when all of
 * it is on disk: a full disk or a kill leaves the old file. Owner: one thread. Errors are
 * sticky. */
#ifndef ENGINE_TRAIN_ASIDE_H
#define ENGINE_TRAIN_ASIDE_H

#include "engine/base/error.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

struct aside {
    FILE *f;
    char path[PATH_MAX], target[PATH_MAX];
    int failed; /* an errno */
};

/* ERR_IO, ERR_USAGE (a name that is too long). */
int aside_open(struct aside *a, const char *target, struct error *e);
void aside_write(struct aside *a, const void *data, size_t bytes);
/* Closes it in any case; ERR_IO: the target is unchanged. */
int aside_finish(struct aside *a, struct error *e);
void aside_drop(struct aside *a);

#endif
