/* Read-only file mappings, and the guard for files that shrink under them. A mapped file that is
 * truncated (a download restarted, a disk that failed) raises SIGBUS at the next read. While a
 * mapping is open, a handler maps zero pages over the rest of it and sets its flag, so the reader
 * finishes on zeros and mapping_check then returns ERR_IO. Readers check at the end of a unit of
 * work (after loading, after a token), never in inner loops: a sigsetjmp around every kernel would
 * cost more, and could not unwind the other threads of the pool. A SIGBUS outside our mappings is
 * passed to the previous handler. Owner: the caller of open. After open any thread may read; open
 * and close from one thread per mapping. */
#ifndef ENGINE_BASE_MAPPING_H
#define ENGINE_BASE_MAPPING_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define MAPPING_MAX 1024 /* mappings open at a time in the process */

struct mapping {
    const uint8_t *data; /* never NULL after open, also for an empty file */
    size_t size;
    char *path;
    int slot; /* private: entry of the guard's table; -1: empty file */
};

/* Regular files only; opening never blocks (a FIFO is refused). ERR_IO, ERR_MEMORY. */
int mapping_open(struct mapping *m, const char *path, struct error *e);
void mapping_close(struct mapping *m); /* accepts a zeroed struct */
/* ERR_IO "… changed while it was read" once a page was lost; cheap (one atomic load). */
int mapping_check(const struct mapping *m, struct error *e);
/* Hints; offsets are rounded to pages inwards (forget) or outwards (want). Errors are ignored. */
/* prefetch: starts reading without blocking */
void mapping_ahead(const struct mapping *m, size_t offset, size_t bytes);
void mapping_want(const struct mapping *m, size_t offset, size_t bytes);
void mapping_forget(const struct mapping *m, size_t offset, size_t bytes);

#endif
