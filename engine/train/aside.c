/* See aside.h. */
#include "engine/train/aside.h"

#include "engine/base/file.h"
#include "engine/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int aside_open(struct aside *a, const char *target, struct error *e)
{
    int fd;

    *a = (struct aside){0};
    if (snprintf(a->target, sizeof a->target, "%s", target) >= (int)sizeof a->target ||
        snprintf(a->path, sizeof a->path, "%s.%ld.part", target, (long)getpid()) >=
            (int)sizeof a->path)
        return error_set(e, ERR_USAGE, "%.64s...: the name is too long", target);
    if ((fd = file_open_write(a->path, O_CREAT | O_TRUNC, 0666, e)) < 0)
        return fd;
    if ((a->f = fdopen(fd, "wb")))
        return 0;
    close(fd);
    unlink(a->path);
    return error_set(e, ERR_IO, "%s: cannot write: %s", target, strerror(errno));
}

void aside_write(struct aside *a, const void *data, size_t bytes)
{
    if (!a->failed && bytes && fwrite(data, 1, bytes, a->f) != bytes)
        a->failed = errno ? errno : EIO;
}

/* A new name is durable only after syncing its folder. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    int fd;

    path_folder(path, folder, sizeof folder);
    if ((fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

int aside_finish(struct aside *a, struct error *e)
{
    if (!a->failed && (fflush(a->f) || fsync(fileno(a->f))))
        a->failed = errno;
    if (fclose(a->f) && !a->failed)
        a->failed = errno;
    a->f = NULL;
    if (!a->failed && rename(a->path, a->target))
        a->failed = errno;
    if (a->failed) {
        unlink(a->path);
        return error_set(e, ERR_IO, "%s: cannot write: %s", a->target, strerror(a->failed));
    }
    sync_folder(a->target);
    return 0;
}

void aside_drop(struct aside *a)
{
    if (!a->f)
        return;
    fclose(a->f);
    a->f = NULL;
    unlink(a->path);
}
