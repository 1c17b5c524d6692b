/* FNV-1a, 64 bits: for keys in the cache folder; not cryptographic. Its values are written to
 * disk. */
#ifndef ENGINE_BASE_HASH_H
#define ENGINE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START 0xcbf29ce484222325u

static inline uint64_t hash_add(uint64_t h, uint64_t value)
{
    return (h ^ value) * 0x100000001b3u;
}

static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < n; i++)
        h = hash_add(h, p[i]);
    return h;
}

#endif
