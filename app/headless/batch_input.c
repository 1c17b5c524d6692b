/* See batch_input.h. */
#include "app/headless/batch_input.h"

#include "app/common/signals.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Number of lines of a regular file, for the progress bar; 0 otherwise. */
static size_t count_lines(FILE *f)
{
    char block[65536];
    size_t lines = 0, n;
    struct stat st;
    bool open = false;

    if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        for (size_t i = 0; i < n; i++) {
            open = block[i] != '\n';
            lines += !open;
        }
    rewind(f);
    lseek(fileno(f), 0, SEEK_SET); /* lines are read from there */
    return lines + open;
}

int batch_input_open(struct batch_input *r, const char *name, struct error *e)
{
    struct stat st;

    r->name = name;
    r->file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    if (!r->file)
        return error_set(e, ERR_IO, "%s: %s", name, strerror(errno));
    if (fstat(fileno(r->file), &st) == 0 && S_ISDIR(st.st_mode))
        return error_set(e, ERR_IO, "%s is a folder", name);
    if (r->file != stdin)
        r->total = count_lines(r->file);
    return 0;
}

void batch_input_release(struct batch_input *r)
{
    if (r->file && r->file != stdin)
        fclose(r->file);
    mem_free(r->line);
}

/* EOF: the end, an error, or a signal. */
static int next_char(struct batch_input *r)
{
    ssize_t n = 0;

    if (r->at < r->have)
        return (unsigned char)r->block[r->at++];
    while ((n = read(fileno(r->file), r->block, sizeof r->block)) < 0 && errno == EINTR &&
           !signals_last())
        ;
    if (n < 0 && errno != EINTR)
        r->failed = errno;
    r->at = 0;
    r->have = n > 0 ? (size_t)n : 0;
    return n > 0 ? (unsigned char)r->block[r->at++] : EOF;
}

bool batch_input_ready(const struct batch_input *r)
{
    struct pollfd p = {.fd = fileno(r->file), .events = POLLIN};

    return memchr(r->block + r->at, '\n', r->have - r->at) || poll(&p, 1, 0) > 0;
}

int batch_input_next(struct batch_input *r, struct error *e)
{
    int c = 0;

    r->n = 0;
    r->too_long = false;
    while ((c = next_char(r)) != EOF && c != '\n') {
        if (r->n + 1 >= r->room && !r->too_long) {
            size_t size = r->room ? r->room * 2 : 4096;

            r->too_long = size > BATCH_LINE_MAX * 2 || !MEM_FIT(r->line, size);
            r->room = r->too_long ? r->room : size;
        }
        if (!r->too_long)
            r->line[r->n++] = (char)c;
    }
    if (signals_last())
        return error_set(e, ERR_CANCELLED, "interrupted");
    if (r->failed)
        return error_set(e, ERR_IO, "cannot read %s: %s", r->name, strerror(r->failed));
    if (c == EOF && !r->n && !r->too_long)
        return 0;
    r->too_long = r->too_long || r->n > BATCH_LINE_MAX;
    if (r->n && r->line[r->n - 1] == '\r')
        r->n--;
    /* byte order mark */
    if (!r->begun && r->n >= 3 && memcmp(r->line, "\xef\xbb\xbf", 3) == 0) {
        memmove(r->line, r->line + 3, r->n -= 3);
        if (c == EOF && !r->n)
            return 0; /* only the mark: an empty file */
    }
    r->begun = true;
    return 1;
}
