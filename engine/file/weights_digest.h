/* The hash of all that a weight file holds, whoever opens it: what is kept of its results is worth
 * nothing beside other weights. Every part is read once, from the first byte to the last, and its
 * hash kept beside its size and time of change; a part that has neither changed is not read again.
 * Any thread. */
#ifndef ENGINE_FILE_WEIGHTS_DIGEST_H
#define ENGINE_FILE_WEIGHTS_DIGEST_H

#include "engine/base/digest.h"
#include "engine/base/stop.h"
#include "engine/file/weights.h"

/* Lower-case SHA-256 of all parts and of config.json, in *hex. folder: of the cache
 * (engine/base/cache.h), where hashes are kept; NULL: nowhere. tell (may be NULL) is called once
 * before anything is read. stop (may be NULL): ERR_CANCELLED. ERR_IO: a part cannot be read, or
 * changed meanwhile; ERR_MEMORY. */
int weights_digest(const struct weight_file *f, const char *folder, void (*tell)(void *ctx),
                   void *tell_ctx, const struct stop *stop, char hex[DIGEST_HEX], struct error *e);

#endif
