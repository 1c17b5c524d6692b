/* Errors: one code and one line of text, filled where the cause is known, printed once at the top.
 * Owner: the caller (a struct on its stack). Any thread; no allocation.
 * Every fallible function returns 0 or a negative code, and `return error_set(e, ...)` does both,
 * so that no branch forgets half of it. The text names the thing (file, flag, line) and the remedy;
 * it ends without a newline. */
#ifndef ENGINE_BASE_ERROR_H
#define ENGINE_BASE_ERROR_H

/* name, exit code of the program, short word used in JSON and logs, meaning (for the man page) */
/* clang-format off */
#define ERROR_TABLE(X)                                                                         \
    X(ERR_INPUT, 1, "input", "a line of a batch, a prompt or a check failed")                  \
    X(ERR_USAGE, 2, "usage",                                                                   \
      "wrong usage or configuration; a configuration, theme or placement that is no "          \
      "regular file")                                                                          \
    X(ERR_MODEL, 3, "model", "the model cannot be read")                                       \
    X(ERR_VALUE, 3, "value", "the model holds or computes values that are not finite numbers") \
    X(ERR_FIT, 4, "fit", "the model or the context does not fit")                              \
    X(ERR_MEMORY, 4, "memory", "out of memory")                                                \
    X(ERR_IO, 5, "io", "reading or writing failed")                                            \
    X(ERR_DEVICE, 1, "device", "a compute device failed")                                      \
    X(ERR_CONTEXT, 1, "context", "the text is longer than the context")                        \
    X(ERR_CANCELLED, 130, "cancelled", "interrupted")
/* clang-format on */

enum error_code {
    ERR_NONE = 0,
#define X(name, exit_code, word, text) name##_ORDINAL,
    ERROR_TABLE(X)
#undef X
};
/* Negative, so that `if (f() < 0)` reads naturally. */
enum {
#define X(name, exit_code, word, text) name = -(int)name##_ORDINAL,
    ERROR_TABLE(X)
#undef X
};

struct error {
    int code;       /* 0 or one of the ERR_ values */
    char text[480]; /* one line, UTF-8, control characters already escaped */
};

/* Formats into *e (may be NULL) and returns code. Control characters in the result become visible
 * (\n, \e, \xNN, \u{202e}). */
int error_set(struct error *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prepends "prefix: " to the text of an error; returns e->code. */
int error_prefix(struct error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *error_word(int code); /* "usage", "model", ... ; "none" for 0 */
int error_exit_code(int code);    /* the program's exit code for it; 0 for 0 */

#endif
