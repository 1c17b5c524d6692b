/* The log: the newest lines in memory, for the log view, bug reports and the crash handler; nothing
 * is printed from here, but every line is also written to a file set by the program. Any thread
 * (one mutex). Only log_dump is async-signal-safe: it reads without the lock and may show a line
 * half written. */
#ifndef ENGINE_BASE_LOG_H
#define ENGINE_BASE_LOG_H

#include <stddef.h>
#include <stdint.h>

#define LOG_LINES 256 /* kept */
/* bytes of a line, NUL included; longer ones are truncated at a code point */
#define LOG_TEXT 240

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

struct log_line {
    uint64_t serial;  /* 1, 2, 3, ... */
    uint64_t time_ns; /* clock_now() */
    enum log_level level;
    char text[LOG_TEXT]; /* UTF-8, control bytes escaped */
};

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The oldest line kept with a serial above `after`: 1 and filled, or 0. Start with 0, continue with
 * the serial of the last line. */
int log_next(uint64_t after, struct log_line *out);
uint64_t log_newest(void); /* serial of the newest line; 0: none */
void log_dump(int fd);
/* Writes the lines kept so far, then every new one, to fd at once: time (UTC), level, text. The
 * caller closes fd, after log_follow(-1), which returns the errno of the first failed write, which
 * ended it; else 0. */
int log_follow(int fd);
const char *log_level_word(enum log_level level);

#endif
