/* SentencePiece's precompiled character map: replacements of short texts before tokenization, as a
 * double array (Darts, Aoe 1989) and the replacement texts. The file's bytes are untrusted: every
 * index is checked. Immutable once read: any thread. */
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
/* The replacement for the start of text, NUL-terminated, and the number of bytes it replaces: by
 * the longest entry, or the shortest. NULL: none. */
const char *charsmap_find(const struct charsmap *c, const char *text, size_t len, bool longest,
                          size_t *used);

#endif
