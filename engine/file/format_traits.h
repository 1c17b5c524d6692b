/* Properties of a quantised format for kernels, packing and files: its row of formats.def and
 * derived values. Pure data, any thread. */
#ifndef ENGINE_FILE_FORMAT_TRAITS_H
#define ENGINE_FILE_FORMAT_TRAITS_H

#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* The columns of formats.def, in their order. */
struct format_traits {
    int blocks, bits, high, zero, minimum;
    int factors, halves, lookup;
    enum scale_kind scale;
    int at, words;
};

/* All zero for other types. A table in a header, so that branches on it vanish from kernels whose
 * type is a constant. */
static const struct format_traits format_of[DTYPE_COUNT] = {
#define FORMAT(id, name, gguf, ...) [DTYPE_##id] = {__VA_ARGS__},
#include "engine/file/formats.def"
};

/* Bytes per row of a superblock's head: scale, minimum, factors. */
static inline int format_head(enum dtype type)
{
    const struct format_traits *f = &format_of[type];

    return DTYPE_HEAD(f->scale, f->minimum, f->factors, f->words ? 0 : f->halves);
}

/* Bytes per row of a block after it: high bits, payload. */
static inline int format_block_bytes(enum dtype type)
{
    return DTYPE_CODES(format_of[type].bits, format_of[type].high);
}

/* Offset of the payload in a block, per row. */
static inline int format_payload(enum dtype type)
{
    return DTYPE_CODES(0, format_of[type].high);
}

/* Offset in the file's superblock of the words that are packed unchanged. */
static inline int format_words_at(enum dtype type)
{
    const struct format_traits *f = &format_of[type];

    return f->at ? 0 : format_head(type);
}

/* Bytes per row of a superblock: as in the file. */
static inline int format_superblock(enum dtype type)
{
    return format_head(type) + (format_of[type].words
                                    ? 4 * format_of[type].words
                                    : format_of[type].blocks * format_block_bytes(type));
}

/* The largest code as kernels read it: an unsigned byte. */
static inline int format_largest(enum dtype type)
{
    const struct format_traits *f = &format_of[type];

    if (f->lookup || (f->words && f->zero > 3))
        return 2 * f->zero - 1;
    return (1 << (f->bits + f->high)) - 1;
}

#endif
