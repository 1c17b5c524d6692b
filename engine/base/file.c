/* See file.h. */
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#if defined(__linux__)
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

static int failed(struct error *e, const char *path)
{
    return error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
}

/* ---- reading ---- */

static bool is_null_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

static const char *kind_word(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

int file_open(const char *path, const struct file_kind *kind, struct error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc = 0;
    struct stat st;

    assert(kind && kind->what && kind->refused < 0);
    if (fd < 0)
        return failed(e, path);
    if (fstat(fd, &st) < 0)
        rc = failed(e, path);
    else if (!S_ISREG(st.st_mode) && !is_null_device(&st))
        rc = error_set(e, kind->refused, "%s: is %s; a %s is expected, which is a regular file",
                       path, kind_word(st.st_mode), kind->what);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

static int too_large(const char *name, const struct file_kind *kind, struct error *e)
{
    bool large = kind->most >= (size_t)1 << 20;

    return error_set(e, kind->refused, "%s: larger than %zu %s; this is no %s", name,
                     large ? kind->most >> 20 : kind->most, large ? "MiB" : "bytes", kind->what);
}

/* Allocates one byte more than the limit, so that a larger file is detected, and for the zero. */
static int grow(char **text, size_t *room, const char *name, size_t most, struct error *e)
{
    size_t wanted = *room ? *room * 2 : 4096;
    char *larger = mem_resize(*text, wanted = wanted < most + 2 ? wanted : most + 2, 1);

    if (!larger)
        return error_set(e, ERR_MEMORY, "%s: out of memory", name);
    *text = larger;
    *room = wanted;
    return 0;
}

int file_drain(int fd, const char *name, const struct file_kind *kind, int (*interrupted)(void),
               char **text, size_t *n, struct error *e)
{
    size_t room = 0;
    ssize_t got = 1;
    int rc = 0;

    assert(fd >= 0 && kind && kind->refused < 0);
    *text = NULL;
    *n = 0;
    while (rc == 0 && got) {
        if (*n + 1 >= room && (rc = grow(text, &room, name, kind->most, e)) < 0)
            break;
        got = read(fd, *text + *n, room - 1 - *n);
        if (got > 0)
            *n += (size_t)got;
        if (*n > kind->most)
            rc = too_large(name, kind, e);
        else if (got < 0 && errno != EINTR)
            rc = failed(e, name);
        else if (got < 0 && interrupted && interrupted())
            rc = error_set(e, ERR_CANCELLED, "interrupted");
    }
    if (rc < 0) {
        mem_free(*text);
        *text = NULL;
        *n = 0;
        return rc;
    }
    (*text)[*n] = 0;
    return 0;
}

int file_read(const char *path, const struct file_kind *kind, char **text, size_t *n,
              struct error *e)
{
    int fd = file_open(path, kind, e), rc;

    *text = NULL;
    *n = 0;
    if (fd < 0)
        return fd;
    rc = file_drain(fd, path, kind, NULL, text, n, e);
    close(fd);
    return rc;
}

/* ---- writing ---- */

int file_open_write(const char *path, int flags, mode_t mode, struct error *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, mode);

    if (fd < 0 && errno == ENXIO)
        return error_set(e, ERR_IO, "%s: a pipe that nobody reads", path);
    if (fd < 0)
        return failed(e, path);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

int file_write_all(int fd, const void *data, size_t n)
{
    const char *p = data;

    assert(fd >= 0 && (data || n == 0));
    while (n) {
        ssize_t put = write(fd, p, n);

        if (put < 0 && errno != EINTR)
            return -1;
        if (put > 0) {
            p += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

static int write_directly(const char *path, const void *data, size_t n, struct error *e)
{
    int fd = file_open_write(path, 0, 0, e), rc = 0;

    if (fd < 0)
        return fd;
    if (file_write_all(fd, data, n) < 0)
        rc = failed(e, path);
    if (close(fd) < 0 && rc == 0)
        rc = failed(e, path);
    return rc;
}

int file_replace(const char *path, const void *data, size_t n, struct error *e)
{
    char real[PATH_MAX], temporary[PATH_MAX + 16];
    struct stat st;
    mode_t mask;
    int fd, rc = 0;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return write_directly(path, data, n, e);
    if (!realpath(path, real)) /* it does not exist: use the name as given */
        snprintf(real, sizeof real, "%s", path);
    else if (stat(real, &st) == 0 && S_ISDIR(st.st_mode))
        return errno = EISDIR, failed(e, path);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", real);
    if ((fd = mkostemp(temporary, O_CLOEXEC)) < 0)
        return failed(e, path);
    umask(mask = umask(077));
    if (fchmod(fd, stat(real, &st) == 0 ? st.st_mode & 07777 : 0666 & ~mask) < 0 ||
        file_write_all(fd, data, n) < 0 || fsync(fd) < 0)
        rc = failed(e, path);
    if (close(fd) < 0 && rc == 0)
        rc = failed(e, path);
    if (rc == 0 && rename(temporary, real) < 0)
        rc = failed(e, path);
    if (rc < 0)
        unlink(temporary);
    return rc;
}

int file_make_folders(const char *path, struct error *e)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return errno = ENAMETOOLONG, failed(e, path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/')
            continue;
        if (*p || p[-1] != '/') {
            char kept = *p;

            *p = 0;
            if (mkdir(part, 0700) < 0 && errno != EEXIST)
                return failed(e, part);
            *p = kept;
        }
        if (!*p)
            return 0;
    }
}

bool file_same(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void file_folder(const char *path, char *out, size_t size)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(out, size, "%s", path);
    else
        path_folder(path, out, size);
}
