/* A running hash that nobody can aim at: SHA-256, by which Git LFS names its files and the prompt
 * cache its own; or SHA-1 with Git's header in front as Git names its own. One thread. */
#ifndef ENGINE_BASE_DIGEST_H
#define ENGINE_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_HEX 65 /* of the longer one, with its 0 */

enum digest_kind { DIGEST_SHA256, DIGEST_GIT_SHA1 };

struct digest {
    struct evp_md_ctx_st *state; /* NULL: failed, and stays so */
};

/* bytes: how many there will be (Git's header names them). Release in any case. */
void digest_init(struct digest *d, enum digest_kind kind, uint64_t bytes);
void digest_add(struct digest *d, const void *data, size_t n);
/* Lower-case hexadecimal, "" when memory ran out. d is empty then. */
void digest_end(struct digest *d, char out[DIGEST_HEX]);
void digest_release(struct digest *d);

#endif
