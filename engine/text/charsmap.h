/* SentencePiece's precompiled character map: which short texts are written otherwise before a text
 * is cut into pieces, as a double array (Darts, Aoe 1989) and the texts they become. The file's
 * bytes are hostile: every index is checked. Immutable once read: any thread. */
#ifndef ENGINE_TEXT_CHARSMAP_H
#define ENGINE_TEXT_CHARSMAP_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct charsmap {
    uint32_t *units; /* mem_* */
    size_t n_units;
    char *texts; /* mem_*, each ends with a NUL, the last one too */
    size_t n_texts;
};

/* data: the size of the array in bytes (32 bits, little-endian), the array, the texts; no bytes at
 * all: an empty map. ERR_MODEL: damaged. */
int charsmap_read(struct charsmap *c, const void *data, size_t size, struct error *e);
void charsmap_release(struct charsmap *c);
/* What the beginning of text is to be written as, NUL-terminated, and how many bytes that replaces:
 * the longest entry, or the shortest. NULL: nothing. */
const char *charsmap_find(const struct charsmap *c, const char *text, size_t len, bool longest,
                          size_t *used);

#endif
