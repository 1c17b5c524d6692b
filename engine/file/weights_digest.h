/* A hash of the whole contents of a weight file, which cached results depend on. Every part is read
 * completely once, and its hash stored with its size and modification time; a part with the same
 * ones is not read again. Any thread. */
#ifndef ENGINE_FILE_WEIGHTS_DIGEST_H
#define ENGINE_FILE_WEIGHTS_DIGEST_H

#include "engine/base/digest.h"
#include "engine/base/stop.h"
#include "engine/file/weights.h"

/* Lower-case SHA-256 of all parts and of config.json, in *hex. folder: the cache folder
 * (engine/base/cache.h) for hashes; NULL: none. tell (may be NULL) is called once before anything
 * is read. stop (may be NULL): ERR_CANCELLED. ERR_IO: a part cannot be read, or changed meanwhile;
 * ERR_MEMORY. */
int weights_digest(const struct weight_file *f, const char *folder, void (*tell)(void *ctx),
                   void *tell_ctx, const struct stop *stop, char hex[DIGEST_HEX], struct error *e);

#endif
