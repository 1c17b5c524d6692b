/* Writing files so that a crash, a full disk or a kill leaves either the old content or the new one. Any thread. */
#ifndef APP_FILE_H
#define APP_FILE_H

#include "engine/base/error.h"

#include <stddef.h>

/* Replaces the file: temporary file beside it, write, fsync, rename. What is no regular file (a pipe, a terminal, /dev/full) is
 * written to directly; a symbolic link keeps pointing where it did. ERR_IO names the path and the reason. */
int file_replace(const char *path, const void *data, size_t n, struct error *e);
/* Makes a folder and those above it. ERR_IO. */
int file_make_folders(const char *path, struct error *e);

#endif
