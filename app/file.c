/* Files replaced as a whole. See file.h. */
#include "app/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(struct error *e, const char *path)
{
    return error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
}

static int write_all(int fd, const char *p, size_t n)
{
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
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY), rc = 0;

    if (fd < 0)
        return failed(e, path);
    if (write_all(fd, data, n) < 0)
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
    if (!realpath(path, real))               /* not there yet: the name as given */
        snprintf(real, sizeof real, "%s", path);
    else if (stat(real, &st) == 0 && S_ISDIR(st.st_mode))
        return errno = EISDIR, failed(e, path);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", real);
    if ((fd = mkostemp(temporary, O_CLOEXEC)) < 0)
        return failed(e, path);
    umask(mask = umask(077));
    if (fchmod(fd, stat(real, &st) == 0 ? st.st_mode & 07777 : 0666 & ~mask) < 0 || write_all(fd, data, n) < 0 || fsync(fd) < 0)
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
            if (mkdir(part, 0777) < 0 && errno != EEXIST)
                return failed(e, part);
            *p = kept;
        }
        if (!*p)
            return 0;
    }
}
