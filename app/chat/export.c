/* See export.h. A new name is created with O_EXCL before anything is written, to avoid a race with
 * other programs. */
#include "app/chat/export.h"

#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct export_mark mark_of(const struct stat *st)
{
    return (struct export_mark){st->st_dev, st->st_ino, st->st_size, st->st_mtim};
}

static bool same_mark(const struct export_mark *a, const struct export_mark *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static bool was_written(const struct chat_exports *x, const struct stat *st)
{
    struct export_mark now = mark_of(st);

    for (size_t i = 0; i < x->n && i < EXPORTS_KEPT; i++)
        if (same_mark(&x->marks[i], &now))
            return true;
    return false;
}

/* Whether the chat saved at path is a prefix of t. */
static bool is_beginning(const struct transcript *t, const char *path)
{
    struct transcript old;
    bool same;

    transcript_init(&old);
    same = transcript_load(&old, path, NULL) == 0 && old.format > 0 && old.n <= t->n;
    for (size_t i = 0; same && i < old.n; i++)
        same = old.entries[i].role == t->entries[i].role &&
               strcmp(old.entries[i].text, t->entries[i].text) == 0;
    transcript_release(&old);
    return same;
}

/* 1: the name was free and is ours now, 0: the existing file may be replaced. */
static int claim(const struct chat_exports *x, const struct transcript *t, const char *path,
                 bool replace, struct error *e)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    struct stat st;

    if (fd >= 0) {
        close(fd);
        return 1;
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return error_set(e, ERR_IO, "%s: there is no such folder; make it first", path);
    if (errno != EEXIST)
        return error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(e, ERR_USAGE, "%s is no file; choose another name", path);
    if (!replace && (stat(path, &st) < 0 || (!was_written(x, &st) && !is_beginning(t, path))))
        return error_set(e, ERR_USAGE, "%s exists and is no copy of this chat; /save! replaces it",
                         path);
    return 0;
}

int chat_export_text(struct chat_exports *x, const struct transcript *t, const char *path,
                     const char *text, size_t n, bool replace, struct error *e)
{
    struct stat st;
    int rc = claim(x, t, path, replace, e), fresh = rc;

    if (rc >= 0)
        rc = file_replace(path, text, n, e);
    if (rc < 0 && fresh == 1)
        unlink(path);
    if (rc == 0 && stat(path, &st) == 0)
        x->marks[x->n++ % EXPORTS_KEPT] = mark_of(&st);
    return rc;
}

int chat_export(struct chat_exports *x, const struct transcript *t, const char *path, bool replace,
                struct error *e)
{
    char *text;
    size_t n;
    int rc = transcript_as(t, path, &text, &n, e);

    if (rc < 0)
        return rc;
    rc = chat_export_text(x, t, path, text, n, replace, e);
    free(text); /* allocated by a stream or jansson */
    return rc;
}
