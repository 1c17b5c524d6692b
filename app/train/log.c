/* See log.h. */
#include "app/train/log.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FILE_MOST ((size_t)1 << 30)

/* Whether a line of an earlier run belongs to a completed step. */
static bool stays(const char *line, size_t n, int done)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const json_t *step = json_object_get(o, "step"), *after = json_object_get(o, "after");
    bool yes = (json_is_integer(step) && json_integer_value(step) <= done) ||
               (json_is_integer(after) && json_integer_value(after) <= done);

    json_decref(o);
    return yes;
}

static int keep_lines(const char *path, int done, struct error *e)
{
    static const struct file_kind kind = {"training log", FILE_MOST, ERR_IO};
    struct strbuf kept = {0};
    char *text;
    size_t n;
    int rc;

    if (!done)
        return file_replace(path, "", 0, e);
    if (access(path, F_OK))
        return 0;
    if ((rc = file_read(path, &kind, &text, &n, e)) < 0)
        return rc;
    for (size_t at = 0, len; at < n; at += len + 1) {
        const char *end = memchr(text + at, '\n', n - at);

        len = end ? (size_t)(end - text) - at : n - at;
        if (end && stays(text + at, len, done))
            strbuf_put(&kept, text + at, len + 1);
    }
    mem_free(text);
    rc = kept.failed ? error_set(e, ERR_MEMORY, "%s: out of memory", path)
                     : file_replace(path, kept.len ? kept.data : "", kept.len, e);
    strbuf_release(&kept);
    return rc;
}

int train_log_open(struct train_log *l, const char *path, int done, struct error *e)
{
    int rc;

    l->path = path;
    l->fd = -1;
    if (!path)
        return 0;
    if ((rc = keep_lines(path, done, e)) < 0)
        return rc;
    l->fd = file_open_write(path, O_CREAT | O_APPEND, 0666, e);
    return l->fd < 0 ? l->fd : 0;
}

static void tell_waiting(struct train_log *l, int why)
{
    struct error e;

    if (!l->told) {
        error_set(&e, ERR_IO, "%s: cannot write: %s; its lines wait", l->path, strerror(why));
        l->say(l->ctx, e.text);
    }
    l->told = true;
}

static void write_waiting(struct train_log *l)
{
    while (l->waiting.len) {
        ssize_t n = write(l->fd, l->waiting.data, l->waiting.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            tell_waiting(l, errno);
            return;
        }
        memmove(l->waiting.data, l->waiting.data + n, l->waiting.len - (size_t)n);
        l->waiting.len -= (size_t)n;
    }
    l->told = false;
}

void train_log_step(struct train_log *l, const struct train_step *s, double seconds)
{
    if (!l->path)
        return;
    strbuf_printf(&l->waiting,
                  "{\"step\": %d, \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": %.17g, "
                  "\"tokens\": %d, \"learned\": %d, \"seconds\": %.3f}\n",
                  s->step, s->loss, s->grad_norm, s->lr, s->tokens, s->learned, seconds);
    write_waiting(l);
}

void train_log_valid(struct train_log *l, int after, double loss)
{
    if (!l->path)
        return;
    strbuf_printf(&l->waiting, "{\"valid_loss\": %.17g, \"after\": %d}\n", loss, after);
    write_waiting(l);
}

int train_log_close(struct train_log *l, struct error *e)
{
    int rc = 0;

    if (!l->path)
        return 0;
    write_waiting(l);
    if (l->waiting.len || l->waiting.failed || (fsync(l->fd) && errno != EINVAL && errno != EROFS))
        rc = error_set(e, ERR_IO, "%s: not all of its lines could be written", l->path);
    close(l->fd);
    strbuf_release(&l->waiting);
    l->path = NULL;
    return rc;
}
