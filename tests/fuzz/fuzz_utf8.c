/* Fuzz target: UTF-8 in every direction. Whatever comes in, clusters advance and add up, and what
 * is escaped or stripped is valid and safe. */
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

static void check_safe(const char *s, size_t n)
{
    uint32_t cp;

    must(utf8_valid(s, n));
    for (size_t i = 0; i < n;) {
        i += utf8_decode(s + i, n - i, &cp);
        must(!utf8_unsafe(cp) || cp == '\n' || cp == '\t');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data;
    size_t at = 0, width = 0, used, need;
    char *out;

    while (at < size) {
        size_t n = utf8_cluster(s + at, size - at);

        must(n > 0 && n <= size - at);
        must(utf8_cluster_width(s + at, n) >= 0 && utf8_cluster_width(s + at, n) <= 2);
        width += (size_t)utf8_cluster_width(s + at, n);
        at += n;
    }
    must(utf8_width(s, size) == width);
    must(utf8_fit(s, size, width, &used) == size && used == width);
    must(utf8_incomplete(s, size) <= 3);
    for (at = 0; at <= size && size < 256; at++) {
        must(utf8_next(s, size, at) <= size);
        must(at == 0 || utf8_previous(s, size, at) < at);
    }
    for (unsigned keep = 0; keep < 4; keep++) {
        need = utf8_escape(NULL, 0, s, size, keep);
        out = malloc(need + 1);
        must(utf8_escape(out, need + 1, s, size, keep) == need && strlen(out) == need);
        check_safe(out, need);
        need = utf8_strip(NULL, 0, s, size, keep);
        must(need <= 3 * size);
        out = realloc(out, need + 1);
        must(utf8_strip(out, need + 1, s, size, keep) == need && strlen(out) == need);
        check_safe(out, need);
        free(out);
    }
    return 0;
}
