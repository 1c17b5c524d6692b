/* What the checks of the doctor share: findings, and files below the root. See internal.h. */
#include "app/doctor/internal.h"

#include "engine/base/size.h"
#include "engine/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct doctor_finding *doctor_find(struct doctor *d, enum doctor_level level, const char *subject,
                                   const char *format, ...)
{
    struct doctor_finding *f = &d->findings[d->n];
    char text[1024];
    va_list list;

    if (d->n == DOCTOR_FINDINGS)
        return NULL;
    d->n++;
    *f = (struct doctor_finding){.level = level};
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    utf8_escape(f->found, sizeof f->found, text, strlen(text), 0);
    utf8_escape(f->subject, sizeof f->subject, subject, strlen(subject), 0);
    return f;
}

void doctor_remedy(struct doctor_finding *f, const char *command, const char *format, ...)
{
    char text[1024];
    va_list list;

    if (!f)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    utf8_escape(f->remedy, sizeof f->remedy, text, strlen(text), 0);
    utf8_escape(f->command, sizeof f->command, command, strlen(command), 0);
}

enum doctor_read doctor_text(const struct doctor *d, const char *path, char text[DOCTOR_TEXT])
{
    char full[2 * PATH_MAX];
    size_t n = 0;
    ssize_t got;
    int fd;

    text[0] = 0;
    snprintf(full, sizeof full, "%s%s", d->place.root, path);
    /* a pipe in the place of a file must not block */
    if ((fd = open(full, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        return errno == EACCES || errno == EPERM ? DOCTOR_FORBIDDEN : DOCTOR_ABSENT;
    while (n < DOCTOR_TEXT - 1 && (got = read(fd, text + n, DOCTOR_TEXT - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    text[n] = 0;
    n = strlen(text);
    while (n && strchr(" \t\n", text[n - 1]))
        text[--n] = 0;
    return n ? DOCTOR_READ : DOCTOR_ABSENT;
}

int64_t doctor_number(const struct doctor *d, const char *path)
{
    char text[DOCTOR_TEXT], *end;
    long long v;

    if (doctor_text(d, path, text) != DOCTOR_READ)
        return -1;
    v = strtoll(text, &end, 10);
    return end == text || v < 0 ? -1 : v;
}

int doctor_list_count(const char *text, int most)
{
    int64_t n = 0;

    while (*text) {
        int from, to;

        if (size_digits(&text, 1 << 20, &from) < 0)
            return 0;
        to = from;
        if (*text == '-' && (text++, size_digits(&text, 1 << 20, &to) < 0 || to < from))
            return 0;
        n += to - from + 1;
        if (*text && *text++ != ',')
            return 0;
    }
    return n < most ? (int)n : most;
}

const char *doctor_rate(double bytes, char out[24])
{
    snprintf(out, 24, bytes < 1e9 ? "%.2f GB/s" : "%.1f GB/s", bytes * 1e-9);
    return out;
}

const char *doctor_level_word(enum doctor_level level)
{
    static const char *const words[] = {"ok", "note", "warn", "bad"};

    return words[level];
}

int doctor_count(const struct doctor *d, enum doctor_level level)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->findings[i].level == level;
    return n;
}
