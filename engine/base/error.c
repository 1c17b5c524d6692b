/* The error table and its formatting. Any thread. */
#include "engine/base/error.h"

#include "engine/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code, exit_code;
    const char *word;
} table[] = {
#define X(name, exit_code, word, text) {name, exit_code, word},
    ERROR_TABLE(X)
#undef X
};

/* Names come from files and users: terminal control sequences must not get through an error
 * line. */
static void set_safe(struct error *e, const char *text)
{
    size_t n = strlen(text);

    utf8_escape(e->text, sizeof e->text, text, n - utf8_incomplete(text, n), 0);
}

int error_set(struct error *e, int code, const char *format, ...)
{
    char text[sizeof e->text]; /* a copy: an argument may be e->text itself */
    va_list args;

    if (!e)
        return code;
    e->code = code;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set_safe(e, text);
    return code;
}

int error_prefix(struct error *e, const char *format, ...)
{
    char prefix[sizeof e->text], joined[2 * sizeof e->text + 3];
    va_list args;

    if (!e)
        return ERR_IO;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    snprintf(joined, sizeof joined, "%s: %s", prefix, e->text);
    set_safe(e, joined);
    return e->code;
}

const char *error_word(int code)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code)
            return table[i].word;
    return code ? "unknown" : "none";
}

int error_exit_code(int code)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code)
            return table[i].exit_code;
    return code ? 1 : 0;
}
