/* The error table and its formatting. Any thread. */
#include "engine/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code, exit_code;
    const char *word, *meaning;
} table[] = {
#define X(name, exit_code, word, text) {name, exit_code, word, text},
    ERROR_TABLE(X)
#undef X
};

/* Names come from files and users: raw control bytes must not reach a terminal through an error line. */
static void escape_controls(char *text, size_t size)
{
    char out[sizeof ((struct error *)0)->text];
    size_t n = 0;

    for (const unsigned char *p = (unsigned char *)text; *p && n + 5 < sizeof out; p++) {
        if (*p < 0x20 || *p == 0x7f)
            n += (size_t)snprintf(out + n, 5, "\\x%02x", *p);
        else
            out[n++] = (char)*p;
    }
    out[n] = 0;
    snprintf(text, size, "%s", out);
}

int error_set(struct error *e, int code, const char *format, ...)
{
    va_list args;

    if (!e)
        return code;
    e->code = code;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    escape_controls(e->text, sizeof e->text);
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
    joined[sizeof e->text - 1] = 0;
    memcpy(e->text, joined, sizeof e->text);
    escape_controls(e->text, sizeof e->text);
    return e->code;
}

const char *error_word(int code)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code)
            return table[i].word;
    return code ? "unknown" : "none";
}

const char *error_meaning(int code)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code)
            return table[i].meaning;
    return "";
}

int error_exit_code(int code)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code)
            return table[i].exit_code;
    return code ? 1 : 0;
}
