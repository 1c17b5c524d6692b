/* See autosave.h. The part file is append-only: one write of all new bytes costs little per token,
 * and after a kill at any time the file is complete up to the last write. */
#include "app/chat/autosave.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/run/report/messages.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PART_MOST (16u << 20) /* bytes of a part that are read back */

static void part_name(char *out, size_t size, const char *path)
{
    snprintf(out, size, "%.*s.part", (int)size - 8, path);
}

static void part_close(struct autosave *f)
{
    if (f->part_fd >= 0)
        close(f->part_fd);
    f->part_fd = -1;
}

void autosave_init(struct autosave *f)
{
    memset(f, 0, sizeof *f);
    f->part_fd = f->lock_fd = -1;
}

static void lock_give_back(struct autosave *f)
{
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    f->lock_fd = -1;
}

int autosave_name(struct autosave *f, struct error *e)
{
    int rc = transcript_default_path(f->path, sizeof f->path, e);

    assert(f->part_fd >= -1);
    part_close(f);
    lock_give_back(f);
    f->part[0] = 0;
    f->claimed = false;
    if (rc < 0)
        f->path[0] = 0;
    else
        part_name(f->part, sizeof f->part, f->path);
    return rc;
}

bool autosave_take(struct autosave *f, const char *path)
{
    int fd;

    assert(strlen(path) + sizeof ".part" < sizeof f->path);
    if (!transcript_lock(path, &fd))
        return false;
    part_close(f);
    lock_give_back(f);
    f->lock_fd = fd;
    snprintf(f->path, sizeof f->path, "%s", path);
    part_name(f->part, sizeof f->part, path);
    f->claimed = access(path, F_OK) == 0;
    return true;
}

void autosave_release(struct autosave *f, bool done)
{
    part_close(f);
    lock_give_back(f);
    if (done && f->part[0])
        unlink(f->part);
}

/* Two programs started in the same second choose the same free name: the one that creates the file
 * gets it, the other takes the next name. */
static int claim(struct autosave *f, struct error *e)
{
    int rc = 0, fd;

    while (!f->claimed && rc == 0 && f->path[0]) {
        fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        f->claimed = fd >= 0 || errno != EEXIST; /* other errors are reported when saving */
        if (fd >= 0)
            close(fd);
        else if (!f->claimed)
            rc = autosave_name(f, e);
    }
    if (rc == 0 && f->lock_fd < 0 && f->path[0])
        transcript_lock(f->path, &f->lock_fd); /* new: no other program can hold it */
    return rc;
}

int autosave_write(struct autosave *f, const struct transcript *t, struct error *e)
{
    size_t i = 0;

    if (!f->path[0])
        return 0;
    while (i < t->n && t->entries[i].role == ROLE_SYSTEM)
        i++;
    if (i == t->n && !f->claimed)
        return 0; /* empty chat: no file */
    if (claim(f, e) < 0)
        return e ? e->code : ERR_IO;
    return transcript_save(t, f->path, e);
}

int autosave_write_turn(struct autosave *f, const struct transcript *t, struct error *e)
{
    int rc = autosave_write(f, t, e);

    if (rc < 0)
        return rc;
    part_close(f);
    if (f->part[0])
        unlink(f->part);
    return 0;
}

void autosave_part_begin(struct autosave *f)
{
    f->part_failed = false;
    f->kept = 0;
}

int autosave_part_write(struct autosave *f, const char *text, size_t len, struct error *e)
{
    int why;

    assert(text || len == 0);
    assert(f->part_fd < 0 || f->part[0]);
    if (len <= f->kept)
        return 0;
    if (f->part_fd < 0 && f->part[0] && !f->part_failed) {
        f->part_fd = file_open_write(f->part, O_CREAT | O_TRUNC, 0600, NULL);
        f->kept = 0;
    }
    while (f->part_fd >= 0 && f->kept < len) {
        ssize_t n = write(f->part_fd, text + f->kept, len - f->kept);

        why = errno;
        if (n > 0) {
            f->kept += (size_t)n;
        } else if (n == 0 || why != EINTR) {
            f->part_failed = true; /* the part is kept; the turn's save tries again */
            part_close(f);
            return error_set(e, ERR_IO, "the answer cannot be kept on disk: %s", strerror(why));
        }
    }
    return 0;
}

void autosave_recover(struct transcript *t, const char *path)
{
    static const struct file_kind kind = {"part of an answer", PART_MOST, ERR_INPUT};
    char part[PATH_MAX], *text;
    const struct transcript_entry *last = t->n ? &t->entries[t->n - 1] : NULL;
    struct error e;
    size_t n;
    int rc = 0;

    part_name(part, sizeof part, path);
    if (file_read(part, &kind, &text, &n, NULL) < 0)
        return;
    if (n) {
        if (last && last->role == ROLE_ASSISTANT)
            rc = transcript_text(t, t->n - 1, text, &e);
        else
            rc = transcript_append(t, ROLE_ASSISTANT, text, &e);
        if (rc >= 0)
            snprintf(t->entries[t->n - 1].stop, sizeof t->entries[0].stop, "%s",
                     stop_reason_word(STOP_CANCELLED));
    }
    mem_free(text);
}
