/* The Hugging Face cache on disk, as huggingface_hub lays it out, so that what one program fetched
 * every other finds:
 *   models--USER--REPO/blobs/HASH            contents, named by what they hash to
 *   models--USER--REPO/blobs/HASH.incomplete what came of one so far
 *   models--USER--REPO/refs/main             the commit that "main" was last seen at
 *   models--USER--REPO/snapshots/COMMIT/PATH links to blobs
 *   .locks/models--USER--REPO/HASH.lock      held (flock) by whom fetches that blob
 * A link is made when its blob is whole and checked, so a link that leads somewhere is a file that
 * can be used. Main thread. */
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
 * repository's folder in it; makes nothing. ERR_USAGE: no home, or too long a name. */
int hub_cache_find(struct hub_cache *c, const char *repo, struct error *e);
/* Makes the folders. ERR_IO. */
int hub_cache_make(const struct hub_cache *c, struct error *e);
/* …/blobs/HASH with `ending` behind it. */
void hub_cache_blob(const struct hub_cache *c, const char *hash, const char *ending, char *out,
                    size_t size);
/* The file of its lock; makes the folder. ERR_IO. */
int hub_cache_lock(const struct hub_cache *c, const char *hash, char *out, size_t size,
                   struct error *e);
/* …/snapshots/COMMIT/PATH; path "": the folder. ERR_USAGE: too long. */
int hub_cache_file(const struct hub_cache *c, const char *commit, const char *path, char *out,
                   size_t size, struct error *e);
/* Makes snapshots/COMMIT/PATH a link to the blob, whatever it was. ERR_IO. */
int hub_cache_link(const struct hub_cache *c, const char *commit, const char *path,
                   const char *hash, struct error *e);
/* refs/main: written, and read ("" when there is none). */
int hub_cache_write_ref(const struct hub_cache *c, const char *commit, struct error *e);
void hub_cache_read_ref(const struct hub_cache *c, char commit[41]);
/* Bytes free for us on the cache's file system; UINT64_MAX: unknown. */
uint64_t hub_cache_room(const struct hub_cache *c);

#endif
