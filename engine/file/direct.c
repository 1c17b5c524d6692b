/* See direct.h. */
#include "engine/file/direct.h"

#include "engine/base/mem.h"
#include "engine/file/reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct part {
    int fd;
    bool cached; /* the file system does not support O_DIRECT */
    off_t size;
    struct timespec written;
};

struct direct_file {
    const struct weight_file *file;
    struct part *parts; /* one per mapping of the file */
    int n;
};

/* Some file systems open with O_DIRECT but fail to read. */
static bool reads(int fd)
{
    _Alignas(DIRECT_ALIGN) uint8_t probe[DIRECT_ALIGN];

    return fd >= 0 && pread(fd, probe, sizeof probe, 0) >= 0;
}

static int open_part(struct part *p, const char *path, struct error *e)
{
    struct stat st;

    p->fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (!reads(p->fd)) {
        if (p->fd >= 0)
            close(p->fd);
        p->fd = open(path, O_RDONLY | O_CLOEXEC);
        p->cached = true;
    }
    if (p->fd < 0 || fstat(p->fd, &st) < 0)
        return error_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    p->size = st.st_size;
    p->written = st.st_mtim;
    return 0;
}

int direct_open(struct direct_file **out, const struct weight_file *f, struct error *e)
{
    struct direct_file *d = mem_alloc(1, sizeof *d);
    int rc = 0;

    *out = NULL;
    if (!d || !(d->parts = mem_alloc((size_t)f->n_maps, sizeof *d->parts))) {
        mem_free(d);
        return error_set(e, ERR_MEMORY, "%s: out of memory", f->path);
    }
    d->file = f;
    while (d->n < f->n_maps && rc == 0) {
        rc = open_part(&d->parts[d->n], f->maps[d->n].path, e);
        d->n++;
    }
    if (rc < 0) {
        direct_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void direct_close(struct direct_file *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n; i++)
        if (d->parts[i].fd >= 0)
            close(d->parts[i].fd);
    mem_free(d->parts);
    mem_free(d);
}

bool direct_bypasses(const struct direct_file *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->parts[i].cached)
            return false;
    return true;
}

size_t direct_room(size_t bytes)
{
    return (bytes + 2 * DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
}

static bool same(const struct part *p)
{
    struct stat st;

    return fstat(p->fd, &st) == 0 && st.st_size == p->size &&
           st.st_mtim.tv_sec == p->written.tv_sec && st.st_mtim.tv_nsec == p->written.tv_nsec;
}

/* Reads until at least `least` bytes are there, of which got already are: the file may end before
 * the last. */
static int read_all(const struct part *p, const struct direct_span *s, uint8_t *to, size_t got)
{
    while (got < s->least) {
        ssize_t more;

        if (got % DIRECT_ALIGN && !p->cached)
            return -1; /* the file ends here */
        more = pread(p->fd, to + got, s->bytes - got, (off_t)s->at + (off_t)got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return more < 0 ? errno : -1;
        got += (size_t)more;
    }
    return 0;
}

struct direct_span direct_span(const struct direct_file *d, const struct tensor_view *t,
                               size_t offset, size_t bytes)
{
    int map = ((const struct stored_tensor *)t)->map;
    size_t at = (size_t)((const uint8_t *)t->data - d->file->maps[map].data) + offset,
           head = at % DIRECT_ALIGN;

    assert(offset + bytes <= t->bytes);
    return (struct direct_span){.fd = d->parts[map].fd,
                                .part = map,
                                .at = (int64_t)(at - head),
                                .bytes = (head + bytes + DIRECT_ALIGN - 1) / DIRECT_ALIGN *
                                         DIRECT_ALIGN,
                                .head = head,
                                .least = head + bytes};
}

const uint8_t *direct_finish(const struct direct_file *d, const struct direct_span *s,
                             uint8_t *buffer, ssize_t got, struct error *e)
{
    const struct part *p = &d->parts[s->part];
    const char *path = d->file->maps[s->part].path;
    size_t here = got > 0 ? (size_t)got : 0; /* other read methods may fail where this does not */
    int failed;

    assert((uintptr_t)buffer % DIRECT_ALIGN == 0);
    failed = read_all(p, s, buffer, here < s->least ? here / DIRECT_ALIGN * DIRECT_ALIGN : here);
    if (failed > 0) {
        error_set(e, ERR_IO, "%s: cannot read %zu bytes at %lld: %s", path, s->least - s->head,
                  (long long)s->at + (long long)s->head, strerror(failed));
        return NULL;
    }
    if (failed || !same(p)) {
        error_set(e, ERR_IO, "%s changed while it was read: start again with the whole file", path);
        return NULL;
    }
    if (p->cached)
        posix_fadvise(p->fd, (off_t)s->at, (off_t)s->bytes, POSIX_FADV_DONTNEED);
    return buffer + s->head;
}

const uint8_t *direct_read(const struct direct_file *d, const struct tensor_view *t, size_t offset,
                           size_t bytes, uint8_t *buffer, struct error *e)
{
    struct direct_span s = direct_span(d, t, offset, bytes);

    return direct_finish(d, &s, buffer, 0, e);
}
