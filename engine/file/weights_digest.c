/* See weights_digest.h. Parts are read with pread instead of the mapping, whose pages would count
 * as this program's memory. */
#include "engine/file/weights_digest.h"

#include "engine/base/cache.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/file/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)
#define RECORD 400 /* most bytes of a stored hash */

/* Hashing one weight file. */
struct reading {
    const char *folder;
    void (*tell)(void *ctx);
    void *tell_ctx;
    const struct stop *stop;
    bool told;
    uint8_t *piece;
};

/* Identifies the content of a file as text: the first line of a stored hash. */
static void describe(const char *path, const struct stat *st, char *out, size_t size)
{
    snprintf(out, size,
             "moetop weights 1: device %" PRIu64 " inode %" PRIu64 " bytes %" PRIu64
             " changed %lld.%09ld path %016" PRIx64 "\n",
             (uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
             (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
             hash_bytes(HASH_START, path, strlen(path)));
}

static void record_path(const struct reading *r, const char *path, char *out, size_t size)
{
    snprintf(out, size, "%s/weights-%016" PRIx64 ".sum", r->folder,
             hash_bytes(HASH_START, path, strlen(path)));
}

static bool is_hex(const char *text)
{
    return strspn(text, "0123456789abcdef") == DIGEST_HEX - 1;
}

/* Reads a stored hash of exactly this content. */
static bool recall(const struct reading *r, const char *path, const char *head,
                   char hex[DIGEST_HEX])
{
    char name[PATH_MAX + 64], *text = NULL;
    size_t n, head_bytes = strlen(head);
    bool known = false;

    if (!r->folder)
        return false;
    record_path(r, path, name, sizeof name);
    if (cache_read(name, RECORD, &text, &n, NULL) == 0 && text && n == head_bytes + DIGEST_HEX &&
        strncmp(text, head, head_bytes) == 0 && is_hex(text + head_bytes) && text[n - 1] == '\n') {
        snprintf(hex, DIGEST_HEX, "%.64s", text + head_bytes);
        known = true;
    }
    mem_free(text);
    return known;
}

/* Stores a hash; if that fails it is computed again the next time. */
static void keep(const struct reading *r, const char *path, const char *head, const char *hex)
{
    char name[PATH_MAX + 64], text[RECORD];
    int n = snprintf(text, sizeof text, "%s%s\n", head, hex);

    if (!r->folder || n >= (int)sizeof text)
        return;
    record_path(r, path, name, sizeof name);
    cache_write(name, text, (size_t)n, NULL);
}

static int read_all(struct reading *r, int fd, const char *path, char hex[DIGEST_HEX],
                    struct error *e)
{
    struct digest d;
    ssize_t got = 1;
    int rc = 0;

    digest_init(&d, DIGEST_SHA256, 0);
    for (off_t at = 0; rc == 0 && got; at += got) {
        do
            got = pread(fd, r->piece, PIECE, at);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            rc = error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        else if (r->stop && r->stop->asked(r->stop->ctx))
            rc = error_set(e, ERR_CANCELLED, "%s: its hash was interrupted", path);
        else
            digest_add(&d, r->piece, (size_t)got);
    }
    digest_end(&d, hex);
    return rc == 0 && !hex[0] ? digest_failed(path, e) : rc;
}

static int hash_part(struct reading *r, const char *path, char hex[DIGEST_HEX], struct error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    char head[RECORD], after[RECORD];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    describe(path, &st, head, sizeof head);
    if (recall(r, path, head, hex))
        goto out;
    if (r->tell && !r->told)
        r->tell(r->tell_ctx);
    r->told = true;
    if ((rc = read_all(r, fd, path, hex, e)) < 0)
        goto out;
    if (fstat(fd, &st) == 0)
        describe(path, &st, after, sizeof after);
    if (strcmp(head, after) != 0)
        rc = error_set(e, ERR_IO, "%s changed while it was read", path);
    else
        keep(r, path, head, hex);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

int weights_digest(const struct weight_file *f, const char *folder, void (*tell)(void *ctx),
                   void *tell_ctx, const struct stop *stop, char hex[DIGEST_HEX], struct error *e)
{
    struct reading r = {.folder = folder, .tell = tell, .tell_ctx = tell_ctx, .stop = stop};
    struct digest all;
    char part[DIGEST_HEX];
    size_t n = 0;
    const void *config = weight_file_aux(f, "config.json", &n);
    int rc = 0;

    hex[0] = 0;
    if (!(r.piece = mem_alloc(PIECE, 1)))
        return error_set(e, ERR_MEMORY, "no memory to read %s", f->path);
    digest_init(&all, DIGEST_SHA256, 0);
    for (int i = 0; i < f->n_maps && rc == 0; i++)
        if ((rc = hash_part(&r, f->maps[i].path, part, e)) == 0)
            digest_add(&all, part, DIGEST_HEX);
    if (config)
        digest_add(&all, config, n);
    digest_end(&all, hex);
    mem_free(r.piece);
    return rc == 0 && !hex[0] ? digest_failed(f->path, e) : rc;
}
