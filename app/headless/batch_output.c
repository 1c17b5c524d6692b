/* See batch_output.h. */
#include "app/headless/batch_output.h"

#include "app/common/signals.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t batch_digest(const char *text, size_t n)
{
    uint64_t h = hash_bytes(HASH_START, text, n);

    return h ? h : 1;
}

static int keep_digest(struct batch_output *out, size_t line, const json_t *answer, struct error *e)
{
    const char *input = json_string_value(json_object_get(answer, "input"));

    /* room for the next power of two */
    if ((line & (line - 1)) == 0 && !MEM_FIT(out->digests, line ? 2 * line : 1))
        return error_set(e, ERR_MEMORY, "out of memory for the answers of %s", out->name);
    out->digests[line] = input ? strtoull(input, NULL, 16) : 0;
    return 0;
}

int batch_output_check(const struct batch_output *out, size_t line, const char *text, size_t n,
                       struct error *e)
{
    uint64_t was = out->digests[line];

    if (!was || was == batch_digest(text, n))
        return 0;
    return error_set(e, ERR_USAGE,
                     "line %zu of the input is not the one that %s answers there; give --resume "
                     "the input of that run, or leave it "
                     "out to begin anew",
                     line + 1, out->name);
}

/* Complete lines of an earlier run: counts and checks them, and cuts off a partial last line. */
static int take_up(struct batch_output *out, struct error *e)
{
    FILE *f = fdopen(dup(out->fd), "r");
    char *line = NULL;
    size_t size = 0, lines = 0;
    off_t end = 0;
    ssize_t n;
    int rc = 0;

    if (!f)
        return error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
    while (rc == 0 && (n = getline(&line, &size, f)) > 0 && line[n - 1] == '\n') {
        json_t *o = json_read_own(line, (size_t)n, "", NULL), *index = json_object_get(o, "index");

        if (!json_is_integer(index) || json_integer_value(index) != (json_int_t)lines ||
            (!json_object_get(o, "text") && !json_object_get(o, "error")))
            rc = error_set(e, ERR_USAGE,
                           "%s: line %zu is not the answer to line %zu of a batch; --resume needs "
                           "the file of the run that was cut short",
                           out->name, lines + 1, lines + 1);
        if (rc == 0)
            rc = keep_digest(out, lines, o, e);
        out->failed_before += json_object_get(o, "error") != NULL;
        json_decref(o);
        lines++;
        end += n;
    }
    if (rc == 0 && ferror(f))
        rc = error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
    if (rc == 0 && (ftruncate(out->fd, end) < 0 || lseek(out->fd, end, SEEK_SET) < 0))
        rc = error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
    free(line); /* allocated by getline */
    fclose(f);
    out->done_before = lines;
    return rc;
}

int batch_output_open(struct batch_output *out, const char *name, bool resume, FILE *in,
                      struct error *e)
{
    struct stat from, to;

    if (!name) {
        out->fd = STDOUT_FILENO;
        out->name = "standard output";
        return 0;
    }
    out->name = name;
    if (stat(out->name, &to) == 0 && !S_ISREG(to.st_mode))
        out->fd = file_open_write(out->name, 0, 0, e);
    /* --resume reads it */
    else if ((out->fd = open(out->name, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
    if (out->fd < 0)
        return ERR_IO;
    if (fstat(out->fd, &to) < 0)
        return error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
    if (fstat(fileno(in), &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return error_set(e, ERR_USAGE, "--batch and --output name the same file, %s", out->name);
    if (!S_ISREG(to.st_mode))
        return resume
                   ? error_set(e, ERR_USAGE, "--resume needs a regular file; %s is none", out->name)
                   : 0;
    if (flock(out->fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(e, ERR_IO, "another batch is writing to %s", out->name);
    if (resume)
        return take_up(out, e);
    return ftruncate(out->fd, 0) == 0 ? 0
                                      : error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
}

int batch_output_sync(const struct batch_output *out, struct error *e)
{
    if (out->fd == STDOUT_FILENO || fsync(out->fd) == 0 || errno == EINVAL || errno == EROFS)
        return 0;
    return error_set(e, ERR_IO, "%s: %s", out->name, strerror(errno));
}

void batch_output_release(struct batch_output *out)
{
    if (out->fd >= 0 && out->fd != STDOUT_FILENO)
        close(out->fd);
    mem_free(out->digests);
}

/* Characters that act on a terminal (C1, bidirectional controls; jansson escapes only C0) are
 * written as \uXXXX: the same text for a JSON parser. */
static void escape_unsafe(struct strbuf *out, const char *json, size_t n)
{
    size_t from = 0, len;
    uint32_t cp;

    for (size_t i = 0; i < n; i += len) {
        len = utf8_decode(json + i, n - i, &cp);
        if (!utf8_unsafe(cp))
            continue;
        strbuf_put(out, json + from, i - from);
        if (cp > 0xffff)
            strbuf_printf(out, "\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)));
        strbuf_printf(out, "\\u%04x", (unsigned)(cp > 0xffff ? 0xdc00 | (cp & 0x3ff) : cp));
        from = i + len;
    }
    strbuf_put(out, json + from, n - from);
    strbuf_putc(out, '\n');
}

int batch_output_write(struct batch_output *out, const json_t *o, struct error *e)
{
    char *json = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct strbuf line = {0};
    size_t at = 0;
    int rc = 0;

    if (json)
        escape_unsafe(&line, json, strlen(json));
    if (!json || line.failed)
        rc = error_set(e, ERR_MEMORY, "out of memory for the answer");
    while (rc == 0 && at < line.len) {
        ssize_t put = write(out->fd, line.data + at, line.len - at);

        if (put > 0)
            at += (size_t)put;
        else if (put < 0 && errno != EINTR)
            rc = out->fd == STDOUT_FILENO
                     ? output_failed(NULL, errno, e)
                     : error_set(e, ERR_IO, "cannot write to %s: %s", out->name, strerror(errno));
    }
    free(json); /* allocated by jansson */
    strbuf_release(&line);
    return rc;
}
