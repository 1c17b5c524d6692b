/* See json.h. Any thread. */
#include "engine/base/json.h"

#include <stdlib.h>
#include <string.h>

json_t *json_read(const void *data, size_t bytes, const char *label, struct error *e)
{
    json_error_t why;
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);

    if (!root)
        error_set(e, ERR_MODEL, "%s: not valid JSON: line %d, column %d: %s", label, why.line, why.column, why.text);
    return root;
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
            root = n && strspn(step, "0123456789") == n ? json_array_get(root, strtoul(step, NULL, 10)) : NULL;
        else
            root = json_object_get(root, step);
        path += n;
        path += *path == '.';
    }
    return root;
}
