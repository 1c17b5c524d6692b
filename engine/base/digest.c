/* See digest.h. */
#include "engine/base/digest.h"

#include "engine/base/library.h"

#include <inttypes.h>
#include <libraries.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define FUNCTIONS(X) \
    X(EVP_DigestFinal_ex) X(EVP_DigestInit_ex) X(EVP_DigestUpdate) X(EVP_MD_CTX_free) \
    X(EVP_MD_CTX_new) X(EVP_sha1) X(EVP_sha256)
/* clang-format on */

#ifdef MOETOP_STATIC
static struct {
    FUNCTIONS(LIBRARY_MEMBER)
} crypto = {FUNCTIONS(LIBRARY_ADDRESS)};

static struct error failure;

static bool loaded(void)
{
    return true;
}
#else
static struct {
    FUNCTIONS(LIBRARY_MEMBER)
} crypto;
static struct error failure; /* written once, as the table is */

static void load(void)
{
    static const char *const names[] = {FUNCTIONS(LIBRARY_NAME) NULL};

    library_load(LIBRARY_CRYPTO, "package libssl3", names, &crypto, sizeof crypto, &failure);
}

static bool loaded(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return !failure.code;
}
#endif

void digest_init(struct digest *d, enum digest_kind kind, uint64_t bytes)
{
    char head[32];
    int n = snprintf(head, sizeof head, "blob %" PRIu64, bytes);

    d->state = loaded() ? crypto.EVP_MD_CTX_new() : NULL;
    if (d->state &&
        crypto.EVP_DigestInit_ex(
            d->state, kind == DIGEST_SHA256 ? crypto.EVP_sha256() : crypto.EVP_sha1(), NULL) != 1)
        digest_release(d);
    if (kind == DIGEST_GIT_SHA1)
        digest_add(d, head, (size_t)n + 1);
}

void digest_add(struct digest *d, const void *data, size_t n)
{
    if (d->state && crypto.EVP_DigestUpdate(d->state, data, n) != 1)
        digest_release(d);
}

void digest_end(struct digest *d, char out[DIGEST_HEX])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    out[0] = 0;
    if (d->state && crypto.EVP_DigestFinal_ex(d->state, raw, &n) == 1)
        for (unsigned i = 0; i < n && 2 * i + 3 <= DIGEST_HEX; i++)
            snprintf(out + 2 * i, 3, "%02x", raw[i]);
    digest_release(d);
}

void digest_release(struct digest *d)
{
    if (d->state)
        crypto.EVP_MD_CTX_free(d->state);
    d->state = NULL;
}

int digest_failed(const char *what, struct error *e)
{
    if (failure.code)
        return error_set(e, failure.code, "%s: %s", what, failure.text);
    return error_set(e, ERR_MEMORY, "%s: no memory for its hash", what);
}
