/* A file that is written aside, piece by piece, and takes its target's place only when all of it is
 * on the disk: a full disk or a kill leaves what was there. Owner: one thread. Errors stick. */
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
/* Closed either way; ERR_IO: the target is as it was. */
int aside_finish(struct aside *a, struct error *e);
void aside_drop(struct aside *a);

#endif
