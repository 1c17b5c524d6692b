/* See cache.h. */
#include "engine/base/cache.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_ROOM 320

/* A path divided in two parts. */
struct place {
    char folder[PATH_MAX];
    const char *name; /* within the path */
};

static int place_of(struct place *p, const char *path, struct error *e)
{
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path || !slash[1] ||
        snprintf(p->folder, sizeof p->folder, "%.*s", (int)(slash - path), path) >=
            (int)sizeof p->folder)
        return error_set(e, ERR_IO, "%s: no file of a cache folder", path);
    p->name = slash + 1;
    return 0;
}

static int failed(struct error *e, const char *path)
{
    return error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
}

/* Descriptor of a folder that only we can write to. */
static int open_folder(const char *folder, struct error *e)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    int rc = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = error_set(e, ERR_IO,
                       "the cache folder %s: %s; nothing is kept (--cache-dir DIR names another)",
                       folder, strerror(errno));
    else if (st.st_uid != geteuid())
        rc = error_set(e, ERR_IO,
                       "the cache folder %s belongs to another user and is not used; --cache-dir "
                       "DIR names another",
                       folder);
    else if (st.st_mode & (S_IWGRP | S_IWOTH))
        rc = error_set(e, ERR_IO,
                       "the cache folder %s is writable by others and is not used; run chmod go-w "
                       "on it, or name another with --cache-dir",
                       folder);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

int cache_check(const char *folder, struct error *e)
{
    int fd;

    /* usually it exists; if it can be neither created nor opened, the open reports why */
    mkdir(folder, 0700);
    if ((fd = open_folder(folder, e)) < 0)
        return fd;
    close(fd);
    return 0;
}

static int read_trusted(int fd, const char *path, size_t most, char **text, size_t *n,
                        struct error *e)
{
    const struct file_kind kind = {"file of the cache", most, ERR_INPUT};
    struct stat st;

    if (fstat(fd, &st) < 0)
        return failed(e, path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(e, ERR_IO, "%s is no file of this user alone and is not used; remove it",
                         path);
    return file_drain(fd, path, &kind, NULL, text, n, e);
}

int cache_read(const char *path, size_t most, char **text, size_t *n, struct error *e)
{
    struct place at;
    int dir, fd, rc;

    *text = NULL;
    *n = 0;
    if ((rc = place_of(&at, path, e)) < 0)
        return rc;
    if (access(at.folder, F_OK) < 0 && errno == ENOENT)
        return 0;
    if ((dir = open_folder(at.folder, e)) < 0)
        return dir;
    fd = openat(dir, at.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    rc = fd >= 0 ? read_trusted(fd, path, most, text, n, e) : errno == ENOENT ? 0 : failed(e, path);
    if (fd >= 0)
        close(fd);
    close(dir);
    return rc;
}

/* Creates a new file in the folder with an unpredictable name. */
static int open_temporary(int dir, const char *name, char *temporary, size_t size)
{
    uint64_t number;

    for (int i = 0; i < 16; i++) {
        int fd;

        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            return -1;
        if (snprintf(temporary, size, ".%s.%016" PRIx64, name, number) >= (int)size)
            return errno = ENAMETOOLONG, -1;
        fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

int cache_write(const char *path, const void *data, size_t n, struct error *e)
{
    char temporary[NAME_ROOM];
    struct place at;
    int dir, fd, rc = place_of(&at, path, e);

    assert(data || n == 0);
    if (rc < 0 || (rc = cache_check(at.folder, e)) < 0)
        return rc;
    if ((dir = open_folder(at.folder, e)) < 0)
        return dir;
    if ((fd = open_temporary(dir, at.name, temporary, sizeof temporary)) < 0) {
        rc = failed(e, path);
    } else {
        if (file_write_all(fd, data, n) < 0)
            rc = failed(e, path);
        if (close(fd) < 0 && rc == 0)
            rc = failed(e, path);
        if (rc == 0 && renameat(dir, temporary, dir, at.name) < 0)
            rc = failed(e, path);
        if (rc < 0)
            unlinkat(dir, temporary, 0);
    }
    close(dir);
    return rc;
}
