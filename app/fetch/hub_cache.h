/* The Hugging Face cache on disk, with the layout of huggingface_hub, so that downloads are shared
 * with other programs:
 *   models--USER--REPO/blobs/HASH            contents, named by their hash
 *   models--USER--REPO/blobs/HASH.incomplete a partial download
 *   models--USER--REPO/refs/main             the last seen commit of "main"
 *   models--USER--REPO/snapshots/COMMIT/PATH links to blobs
 *   .locks/models--USER--REPO/HASH.lock      locked (flock) while that blob is downloaded
 * A link is made after its blob is complete and verified, so a valid link means a usable file. Main
 * thread. */
#ifndef APP_FETCH_HUB_CACHE_H
#define APP_FETCH_HUB_CACHE_H

#include "engine/base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_cache {
    char folder[PATH_MAX / 2]; /* …/models--USER--REPO */
};

/* Of the environment; NULL: it is not there, or empty. */
const char *hub_cache_variable(const char *name);
/* $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, and the
 * repository's folder in it; creates nothing. ERR_USAGE: no home, or too long a name. */
int hub_cache_find(struct hub_cache *c, const char *repo, struct error *e);
/* Creates the folders. ERR_IO. */
int hub_cache_make(const struct hub_cache *c, struct error *e);
/* …/blobs/HASH followed by `ending`. */
void hub_cache_blob(const struct hub_cache *c, const char *hash, const char *ending, char *out,
                    size_t size);
/* The path of its lock file; creates the folder. ERR_IO. */
int hub_cache_lock(const struct hub_cache *c, const char *hash, char *out, size_t size,
                   struct error *e);
/* …/snapshots/COMMIT/PATH; path "": the folder. ERR_USAGE: too long. */
int hub_cache_file(const struct hub_cache *c, const char *commit, const char *path, char *out,
                   size_t size, struct error *e);
/* Makes snapshots/COMMIT/PATH a link to the blob, replacing what was there. ERR_IO. */
int hub_cache_link(const struct hub_cache *c, const char *commit, const char *path,
                   const char *hash, struct error *e);
/* refs/main: written, and read ("" when there is none). */
int hub_cache_write_ref(const struct hub_cache *c, const char *commit, struct error *e);
void hub_cache_read_ref(const struct hub_cache *c, char commit[41]);
/* Bytes available to us on the cache's file system; UINT64_MAX: unknown. */
uint64_t hub_cache_room(const struct hub_cache *c);

#endif
