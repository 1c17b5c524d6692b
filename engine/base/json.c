/* See json.h. Any thread. */
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

static json_t *parse(const void *data, size_t bytes, size_t more, const char *label, int code,
                     struct error *e)
{
    json_error_t why;
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | more, &why);

    if (!root)
        error_set(e, code, "%s: not valid JSON: line %d, column %d: %s", label, why.line,
                  why.column, why.text);
    return root;
}

json_t *json_read(const void *data, size_t bytes, const char *label, struct error *e)
{
    return parse(data, bytes, 0, label, ERR_MODEL, e);
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
