/* An incremental cryptographic hash: SHA-256, by which Git LFS names its files and the prompt cache
 * its own; or SHA-1 with Git's header, by which Git names its objects. One thread. */
#ifndef ENGINE_BASE_DIGEST_H
#define ENGINE_BASE_DIGEST_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_HEX 65 /* for the longer one, with its 0 */

enum digest_kind { DIGEST_SHA256, DIGEST_GIT_SHA1 };

struct digest {
    struct evp_md_ctx_st *state; /* NULL: failed for good */
};

/* bytes: total size of the data to come, for Git's header. End or release it in any case. */
void digest_init(struct digest *d, enum digest_kind kind, uint64_t bytes);
void digest_add(struct digest *d, const void *data, size_t n);
/* Lower-case hexadecimal, "" if memory ran out or libcrypto is not installed. d is empty then. */
void digest_end(struct digest *d, char out[DIGEST_HEX]);
void digest_release(struct digest *d);
/* Why a digest is "": "WHAT: libcrypto.so.3 is not installed ..." or ERR_MEMORY. Returns the code.
 */
int digest_failed(const char *what, struct error *e);

#endif
