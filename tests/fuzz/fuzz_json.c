/* Fuzz target: JSON documents and the paths into them. The first line is the path, the rest the
 * document. */
#include "engine/base/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = memchr(data, '\n', size);
    size_t n = line ? (size_t)(line - data) : 0;
    char path[512];
    struct error e = {0};
    json_t *root;

    n = n < sizeof path - 1 ? n : sizeof path - 1;
    memcpy(path, data, n);
    path[n] = 0;
    if (!(root = json_read(line ? line + 1 : data, line ? size - (size_t)(line + 1 - data) : size,
                           "input", &e))) {
        if (e.code != ERR_MODEL || !e.text[0] || strchr(e.text, '\n'))
            abort();
        return 0;
    }
    json_walk(root, path);
    json_decref(root);
    return 0;
}
