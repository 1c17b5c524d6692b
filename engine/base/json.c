/* See json.h. Any thread. */
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An integer of so many digits always fits. */
#define SAFE_DIGITS 18

/* A copy (mem_*) in which longer integers, outside of strings, are written as reals. */
static char *widen_integers(const char *data, size_t bytes, size_t *len)
{
    char *copy = mem_alloc(bytes + bytes / SAFE_DIGITS * 2 + 2, 1);
    bool text = false;
    size_t n = 0, digits = 0;

    for (size_t i = 0; copy && i < bytes; i++) {
        char c = data[i];
        bool digit = !text && c >= '0' && c <= '9', part = c == '.' || c == 'e' || c == 'E';

        if (digits > SAFE_DIGITS && !digit && !part) {
            copy[n++] = 'e';
            copy[n++] = '0';
        }
        /* digits after a point or an exponent are not an integer's */
        digits = digit ? digits + (digits > 0 || i == 0 || !strchr(".eE+", data[i - 1])) : 0;
        if (c == '"')
            text = !text;
        copy[n++] = c;
        if (text && c == '\\' && i + 1 < bytes)
            copy[n++] = data[++i];
    }
    *len = n;
    return copy;
}

json_t *json_load_wide(const void *data, size_t bytes, size_t flags, json_error_t *why)
{
    json_t *root = json_loadb(data, bytes, flags, why);
    char *copy;

    if (root || json_error_code(why) != json_error_numeric_overflow ||
        !(copy = widen_integers(data, bytes, &bytes)))
        return root;
    root = json_loadb(copy, bytes, flags, why);
    mem_free(copy);
    return root;
}

static json_t *parse(const void *data, size_t bytes, size_t more, const char *label, int code,
                     struct error *e)
{
    json_error_t why;
    json_t *root = json_load_wide(data, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | more,
                                  &why);

    if (!root)
        error_set(e, code, "%s: not valid JSON: line %d, column %d: %s", label, why.line,
                  why.column, why.text);
    return root;
}

json_t *json_read(const void *data, size_t bytes, const char *label, struct error *e)
{
    return parse(data, bytes, 0, label, ERR_MODEL, e);
}

/* Length of one of Python's three words at this place; 0: none. */
static size_t python_word(const char *at, size_t left)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);

        if (left >= n && memcmp(at, words[i], n) == 0)
            return n;
    }
    return 0;
}

/* A copy (mem_*) in which they are null, outside of strings. */
static char *without_python_words(const char *data, size_t bytes, size_t *len)
{
    char *copy = mem_alloc(bytes + bytes / 3 + 1, 1);
    bool text = false;
    size_t n = 0, word;

    for (size_t i = 0; copy && i < bytes; i++) {
        if (!text && (word = python_word(data + i, bytes - i))) {
            memcpy(copy + n, "null", 4);
            n += 4;
            i += word - 1;
            continue;
        }
        if (data[i] == '"')
            text = !text;
        copy[n++] = data[i];
        if (text && data[i] == '\\' && i + 1 < bytes)
            copy[n++] = data[++i];
    }
    *len = n;
    return copy;
}

json_t *json_read_python(const void *data, size_t bytes, const char *label, struct error *e)
{
    json_t *root = json_read(data, bytes, label, e);
    struct error again;
    char *copy;

    if (root || !(copy = without_python_words(data, bytes, &bytes)))
        return root;
    root = json_read(copy, bytes, label, &again);
    mem_free(copy);
    return root;
}

json_t *json_read_own(const void *data, size_t bytes, const char *label, struct error *e)
{
    return parse(data, bytes, JSON_ALLOW_NUL, label, ERR_MODEL, e);
}

int json_read_file(json_t **root, const char *path, const struct file_kind *kind, struct error *e)
{
    char *text;
    size_t n;
    int rc = file_read(path, kind, &text, &n, e);

    *root = rc < 0 ? NULL : parse(text, n, JSON_ALLOW_NUL, path, kind->refused, e);
    mem_free(text);
    return *root ? 0 : rc < 0 ? rc : kind->refused;
}

const json_t *json_walk(const json_t *root, const char *path)
{
    char step[256];

    while (root && *path) {
        size_t n = strcspn(path, ".");

        if (n >= sizeof step)
            return NULL;
        memcpy(step, path, n);
        step[n] = 0;
        if (json_is_array(root))
            root = n && strspn(step, "0123456789") == n
                       ? json_array_get(root, strtoul(step, NULL, 10))
                       : NULL;
        else
            root = json_object_get(root, step);
        path += n;
        path += *path == '.';
    }
    return root;
}

int json_write_file(json_t *root, const char *path, size_t flags, struct error *e)
{
    char *text = root ? json_dumps(root, flags) : NULL;
    int rc = text ? file_replace(path, text, strlen(text), e)
                  : error_set(e, ERR_MEMORY, "%s: out of memory", path);

    free(text); /* jansson's own allocation */
    json_decref(root);
    return rc;
}
