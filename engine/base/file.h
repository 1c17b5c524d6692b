/* Whole files: reading without blocking, and writing so that a crash, a full disk or a kill leaves
 * either the old content or the new one. Any thread. Every error message begins with the path;
 * texts belong to the caller (mem_free). */
#ifndef ENGINE_BASE_FILE_H
#define ENGINE_BASE_FILE_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What kind of file a reader accepts. */
struct file_kind {
    const char *what; /* "configuration file": for "… is expected" */
    size_t most;      /* bytes; larger ones are refused */
    int refused;      /* error code for a larger file, or no regular file */
};

/* Descriptor of a regular file, or of /dev/null, which is an empty one. A pipe, a socket, a folder
 * and any other device are refused at once: opening never waits for a writer. ERR_IO when it cannot
 * be opened. */
int file_open(const char *path, const struct file_kind *kind, struct error *e);
/* Reads the whole of such a file, zero-terminated. ERR_IO, ERR_MEMORY, kind->refused. */
int file_read(const char *path, const struct file_kind *kind, char **text, size_t *n,
              struct error *e);
/* Reads everything from fd, of whatever kind. A read interrupted by a signal is repeated unless
 * interrupted() (may be NULL) returns non-zero: then ERR_CANCELLED. */
int file_drain(int fd, const char *name, const struct file_kind *kind, int (*interrupted)(void),
               char **text, size_t *n, struct error *e);

/* Descriptor for writing; flags: O_APPEND, O_TRUNC, O_EXCL, O_CREAT. Pipes and devices are
 * accepted, but a pipe without a reader is an error instead of blocking. ERR_IO. */
int file_open_write(const char *path, int flags, mode_t mode, struct error *e);
/* write(2) until all is written; -1 with errno. */
int file_write_all(int fd, const void *data, size_t n);
/* Replaces the file: temporary file in the same folder, write, fsync, rename. What is no regular
 * file (a pipe, a terminal, /dev/full) is written to directly; a symbolic link keeps its target.
 * ERR_IO names the path and the reason. */
int file_replace(const char *path, const void *data, size_t n, struct error *e);
/* Whether both lead to one file or folder. */
bool file_same(const char *a, const char *b);
/* The folder that a path is, or that its file stands in. */
void file_folder(const char *path, char *out, size_t size);
/* Makes a folder and those above it, for their owner alone (0700) where they are new, as the XDG
 * specification wants. ERR_IO. */
int file_make_folders(const char *path, struct error *e);

#endif
