/* See prompt.h. */
#include "app/setup/prompt.h"

#include "app/common/signals.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_BYTES_MAX (64u << 20)

/* All of a file, a pipe or standard input ("-"), without one trailing newline. */
static int read_text(const char *path, char **out, struct error *e)
{
    static const struct file_kind kind = {"prompt", PROMPT_BYTES_MAX, ERR_USAGE};
    bool standard = !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    /* blocks until a pipe has a writer */
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc;
    char *text;
    size_t n;

    if (fd < 0)
        return errno == EINTR ? error_set(e, ERR_CANCELLED, "interrupted")
                              : error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    rc = file_drain(fd, name, &kind, signals_last, &text, &n, e);
    if (!standard)
        close(fd);
    if (rc < 0)
        return rc;
    if (strlen(text) != n) {
        rc = error_set(e, ERR_USAGE, "%s: byte %zu is zero; a text is expected", name,
                       strlen(text) + 1);
        mem_free(text);
        return rc;
    }
    if (n && text[n - 1] == '\n')
        text[--n] = 0;
    if (n && text[n - 1] == '\r')
        text[--n] = 0;
    *out = text;
    return 0;
}

/* -e: \n, \t, \r, \\, \", \' are replaced by their characters; any other backslash stays. In place.
 */
static void unescape(char *text)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    char *w = text;

    for (const char *p = text; *p; p++) {
        const char *known = *p == '\\' && p[1] ? strchr(from, p[1]) : NULL;

        *w++ = known ? to[known - from] : *p;
        p += known != NULL;
    }
    *w = 0;
}

/* -p A -f B: A, an empty line, B. */
static char *join(const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 3;
    char *out = mem_alloc(size, 1);

    if (out)
        snprintf(out, size, "%s\n\n%s", a, b);
    return out;
}

int prompt_read(const struct options *o, char **out, struct error *e)
{
    char *text = NULL, *more = NULL, *both;
    int rc = 0;

    *out = NULL;
    if (o->prompt && !strcmp(o->prompt, "-")) {
        if (o->file && !strcmp(o->file, "-"))
            return error_set(e, ERR_USAGE,
                             "-p - and -f - both ask for standard input; give one of them");
        rc = read_text("-", &text, e);
    } else if (o->prompt && !(text = mem_string(o->prompt))) {
        rc = error_set(e, ERR_MEMORY, "out of memory");
    } else if (text && o->escape) {
        unescape(text);
    }
    if (rc == 0 && o->file && (rc = read_text(o->file, &more, e)) == 0) {
        both = text ? join(text, more) : more;
        if (!both)
            rc = error_set(e, ERR_MEMORY, "out of memory");
        if (both != more)
            mem_free(more);
        mem_free(text);
        text = both;
    }
    if (rc < 0) {
        mem_free(text);
        return rc;
    }
    *out = text;
    return 0;
}

int prompt_system(const struct options *o, char **out, struct error *e)
{
    *out = NULL;
    /* Where both are given, the one from the stronger source counts. */
    if (o->system_prompt_file && *o->system_prompt_file &&
        (!o->system_prompt ||
         o->origin[OPTION_ID_system_prompt_file].from >= o->origin[OPTION_ID_system_prompt].from))
        return read_text(o->system_prompt_file, out, e);
    if (!o->system_prompt || !*o->system_prompt)
        return 0;
    if (!(*out = mem_string(o->system_prompt)))
        return error_set(e, ERR_MEMORY, "out of memory");
    if (o->escape)
        unescape(*out);
    return 0;
}
