/* The cache folder: compiled kernels, verdicts and measured tables that are recreated when missing.
 * Any thread.
 *
 * Its contents are trusted: compiled programs are passed to a driver unchecked. So nothing that
 * another user could have put there is read, and nothing is written where another user could have
 * prepared a link: the folder must belong to the effective user and must not be writable by anybody
 * else, each file must be a regular one of the same kind, no link is followed, and a new file is
 * written under a random name and then renamed. A key of what the content depends on is part of
 * each name, and a checksum inside detects damage; neither is a protection, ownership is. All names
 * are relative to the open folder, so it cannot be exchanged in between. */
#ifndef ENGINE_BASE_CACHE_H
#define ENGINE_BASE_CACHE_H

#include "engine/base/error.h"

#include <stddef.h>

/* Creates the folder (0700; not its parents) and checks it. ERR_IO names the folder and the remedy:
 * the caller continues without it. */
int cache_check(const char *folder, struct error *e);
/* path: of a file directly in such a folder. Reads the whole file, zero-terminated, mem_free. *text
 * is NULL, and 0 returned, if there is none. ERR_INPUT: larger than `most`; ERR_IO: the folder or
 * the file is untrusted or unreadable. */
int cache_read(const char *path, size_t most, char **text, size_t *n, struct error *e);
/* Replaces the whole file atomically. ERR_IO. */
int cache_write(const char *path, const void *data, size_t n, struct error *e);

#endif
