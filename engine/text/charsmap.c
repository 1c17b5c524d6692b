/* See charsmap.h. */
#include "engine/text/charsmap.h"

#include "engine/base/mem.h"

#include <string.h>

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

static uint32_t little_endian(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int charsmap_read(struct charsmap *c, const void *data, size_t size, struct error *e)
{
    const unsigned char *p = data;
    size_t bytes;

    if (size == 0)
        return 0;
    bytes = size >= 4 ? little_endian(p) : 0;
    if (bytes == 0 || bytes % 4 || bytes >= size - 4 || p[size - 1] != 0)
        return error_set(e, ERR_MODEL, "the tokenizer's precompiled_charsmap is damaged");
    c->n_units = bytes / 4;
    c->n_texts = size - 4 - bytes;
    c->units = mem_alloc(c->n_units, sizeof *c->units);
    c->texts = mem_alloc(c->n_texts, 1);
    if (!c->units || !c->texts)
        return error_set(e, ERR_MEMORY, "out of memory for the tokenizer");
    for (size_t i = 0; i < c->n_units; i++)
        c->units[i] = little_endian(p + 4 + 4 * i);
    memcpy(c->texts, p + 4 + bytes, c->n_texts);
    return 0;
}

void charsmap_release(struct charsmap *c)
{
    mem_free(c->units);
    mem_free(c->texts);
    *c = (struct charsmap){0};
}

const char *charsmap_find(const struct charsmap *c, const char *text, size_t len, bool longest,
                          size_t *used)
{
    const char *found = NULL;
    uint32_t at;

    if (c->n_units == 0)
        return NULL;
    at = unit_offset(c->units[0]);
    for (size_t i = 0; i < len && text[i]; i++) {
        uint32_t byte = (unsigned char)text[i], unit, value;

        at ^= byte;
        unit = at < c->n_units ? c->units[at] : 0;
        if (at >= c->n_units || (unit & (1u << 31 | 0xff)) != byte)
            break;
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1))
            continue;
        value = at < c->n_units ? c->units[at] & ~(1u << 31) : UINT32_MAX;
        if (value >= c->n_texts)
            break;
        found = c->texts + value;
        *used = i + 1;
        if (!longest)
            break;
    }
    return found;
}
