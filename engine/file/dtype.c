/* Lookups in the dtype table. Any thread. */
#include "engine/file/dtype.h"

#include <assert.h>
#include <strings.h>
#include <string.h>

static const struct dtype_info table[DTYPE_COUNT] = {
#define X(name, gguf, bytes, word, safetensors) \
    [DTYPE_##name] = {word, safetensors, gguf, 1, bytes},
    DTYPE_FLOATS(X) DTYPE_INTEGERS(X)
#undef X
#define FORMAT(id, name, gguf, blocks, bits, high, zero, minimum, factors, halves, lookup, scale, \
               at, words)                                                                         \
    [DTYPE_##id] = {#name, NULL, gguf, 32 * blocks,                                               \
                    DTYPE_HEAD(scale, minimum, factors, (words) ? 0 : (halves)) +                 \
                        ((words) ? 4 * (words) : (blocks)*DTYPE_CODES(bits, high))},
#include "engine/file/formats.def"
};

const struct dtype_info *dtype_info(enum dtype type)
{
    assert(type < DTYPE_COUNT);
    return &table[type];
}

int dtype_from_word(const char *word)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcasecmp(table[i].word, word) == 0)
            return i;
    return -1;
}

int dtype_from_gguf(uint32_t id)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (table[i].gguf >= 0 && (uint32_t)table[i].gguf == id)
            return i;
    return -1;
}

int dtype_from_safetensors(const char *name)
{
    if (strcmp(name, "U32") == 0) /* words of codes, whose sign means nothing */
        return DTYPE_I32;
    if (strcmp(name, "I8") == 0 || strcmp(name, "F8_E8M0") == 0) /* of packings: bytes */
        return DTYPE_U8;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (table[i].safetensors && strcmp(table[i].safetensors, name) == 0)
            return i;
    return -1;
}

int dtype_is_quantised(enum dtype type)
{
    assert(type < DTYPE_COUNT);
    return table[type].block > 1;
}

size_t dtype_row_bytes(enum dtype type, int64_t cols)
{
    const struct dtype_info *d = &table[type];

    assert(type < DTYPE_COUNT);
    if (cols < 0 || cols % d->block || cols / d->block > (int64_t)(SIZE_MAX / 2 / (size_t)d->bytes))
        return 0;
    if (type == DTYPE_F8)
        cols += (cols + F8_BLOCK - 1) / F8_BLOCK * (F8_BLOCK_BYTES - F8_BLOCK);
    return (size_t)(cols / d->block) * (size_t)d->bytes;
}
