/* See log.h. A fixed array, so that logging works when memory does not. */
#include "engine/base/log.h"

#include "engine/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct log_line lines[LOG_LINES];
static atomic_uint_fast64_t newest;
static int follower = -1, follow_errno;

/* One write per line, so that lines of several programs in one file stay whole. Under the lock. */
static void follow(const struct log_line *line)
{
    char text[LOG_TEXT + 64];
    struct timespec wall;
    struct tm utc;
    uint64_t age = clock_now() - line->time_ns;
    size_t n, at;
    ssize_t put;

    if (follower < 0)
        return;
    clock_gettime(CLOCK_REALTIME, &wall);
    wall.tv_sec -= (time_t)(age / CLOCK_SECOND);
    if ((wall.tv_nsec -= (long)(age % CLOCK_SECOND)) < 0) {
        wall.tv_nsec += (long)CLOCK_SECOND;
        wall.tv_sec--;
    }
    gmtime_r(&wall.tv_sec, &utc);
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    n += (size_t)snprintf(text + n, sizeof text - n, ".%03ldZ %s ", wall.tv_nsec / 1000000,
                          log_level_word(line->level));
    n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", line->text);
    for (at = 0; at < n; at += (size_t)put)
        if ((put = write(follower, text + at, n - at)) <= 0) {
            if (put < 0 && errno == EINTR) {
                put = 0;
                continue;
            }
            follow_errno = put < 0 ? errno : ENOSPC;
            follower = -1;
            return;
        }
}

void log_write(enum log_level level, const char *format, ...)
{
    char raw[LOG_TEXT], text[LOG_TEXT];
    struct log_line *line;
    uint64_t serial;
    size_t n = 0;
    va_list args;
    int length;

    assert(level >= LOG_LEVEL_DEBUG && level <= LOG_LEVEL_ERROR);
    va_start(args, format);
    length = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    if (length >= (int)sizeof raw) { /* truncated: not within a code point */
        size_t end = sizeof raw - 1;

        while (end && ((unsigned char)raw[end - 1] & 0xc0) == 0x80)
            end--;
        if (end && (unsigned char)raw[end - 1] >= 0xc0)
            end--;
        raw[end] = 0;
    }
    for (const unsigned char *p = (unsigned char *)raw; *p && n + 5 < sizeof text; p++) {
        if (*p < 0x20 || *p == 0x7f)
            n += (size_t)snprintf(text + n, 5, "\\x%02x", *p);
        else
            text[n++] = (char)*p;
    }
    text[n] = 0;
    pthread_mutex_lock(&lock);
    serial = atomic_load(&newest) + 1;
    line = &lines[serial % LOG_LINES];
    line->serial = serial;
    line->time_ns = clock_now();
    line->level = level;
    memcpy(line->text, text, n + 1);
    atomic_store(&newest, serial);
    follow(line);
    pthread_mutex_unlock(&lock);
}

int log_next(uint64_t after, struct log_line *out)
{
    uint64_t last, first;
    int found = 0;

    pthread_mutex_lock(&lock);
    last = atomic_load(&newest);
    first = last > LOG_LINES ? last - LOG_LINES + 1 : 1;
    if (after < last) {
        *out = lines[(after + 1 > first ? after + 1 : first) % LOG_LINES];
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int log_follow(int fd)
{
    uint64_t last, serial;
    int rc;

    pthread_mutex_lock(&lock);
    rc = follow_errno;
    follow_errno = 0;
    follower = fd;
    last = atomic_load(&newest);
    for (serial = last > LOG_LINES ? last - LOG_LINES + 1 : 1; serial <= last; serial++)
        follow(&lines[serial % LOG_LINES]);
    pthread_mutex_unlock(&lock);
    return rc;
}

uint64_t log_newest(void)
{
    return atomic_load(&newest);
}

void log_dump(int fd)
{
    uint64_t last = atomic_load(&newest), serial = last > LOG_LINES ? last - LOG_LINES + 1 : 1;

    for (; serial <= last; serial++) {
        const struct log_line *l = &lines[serial % LOG_LINES];

        if (write(fd, l->text, strnlen(l->text, sizeof l->text)) < 0 || write(fd, "\n", 1) < 0)
            return;
    }
}

const char *log_level_word(enum log_level level)
{
    static const char *const words[] = {"debug", "info", "warning", "error"};

    return (unsigned)level < sizeof words / sizeof *words ? words[level] : "unknown";
}
