/* Inside engine/file: finding and checking the parts of a packed matrix (packed.h). Thread: the one
 * that opens the file. */
#ifndef ENGINE_FILE_PACKED_SHOW_H
#define ENGINE_FILE_PACKED_SHOW_H

#include "engine/base/half.h"
#include "engine/file/packed_parts.h"
#include "engine/file/reader.h"

#include <string.h>

/* Suffixes of the parts' names; "": the name itself, if its type identifies it. */
struct scheme {
    const char *codes, *becomes, *scales[2], *zeros, *groups, *further;
    bool by_type;
    const char *unused[3]; /* for activations rounded as in training, which we do not do */
};

struct showing {
    struct weight_file *f;
    const struct packing *packing;
    const struct scheme *scheme;
    uint8_t *part; /* per tensor: whether it is part of a packed one */
    struct error *e;
};

/* ERR_MODEL: the tensor's shape and type, and what is wanted. */
int packed_wrong_shape(const struct showing *s, const struct tensor_view *t, const char *wanted);
/* The part with that suffix for these codes; NULL: none. */
const struct tensor_view *packed_find_part(const struct showing *s, const struct tensor_view *codes,
                                           const char *ending);
/* The same, but required. out->name is the file's until it closes the parts. */
int packed_take_part(const struct showing *s, const struct tensor_view *codes, const char *ending,
                     struct tensor_view *out);

static inline bool packed_is_float(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

static inline bool packed_has_shape(const struct tensor_view *t, int64_t d0, int64_t d1)
{
    return t->n_dims == 2 && t->dims[0] == d0 && t->dims[1] == d1;
}

/* The product of all dimensions but the last. */
static inline int64_t packed_lines(const struct tensor_view *t)
{
    int64_t n = 1;

    for (int i = 0; i + 1 < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

/* Converts 16 bytes of two consecutive elements each to the files' order: elements 0..15 in the low
 * nibbles, 16..31 in the high ones. */
static inline void packed_halve(const uint8_t *pairs, uint8_t *out)
{
    for (int i = 0; i < 8; i++) {
        out[2 * i] = (uint8_t)((pairs[i] & 15) | (pairs[8 + i] & 15) << 4);
        out[2 * i + 1] = (uint8_t)(pairs[i] >> 4 | (pairs[8 + i] & 0xf0));
    }
}

/* Element i of floats, or of words. */
static inline float packed_float(const struct tensor_view *t, int64_t i)
{
    const uint8_t *at = t->data;
    uint16_t h;
    float x;

    if (t->type == DTYPE_F32) {
        memcpy(&x, at + 4 * i, 4);
        return x;
    }
    memcpy(&h, at + 2 * i, 2);
    return t->type == DTYPE_F16 ? num_from_f16(h) : num_from_bf16(h);
}

static inline uint32_t packed_word(const struct tensor_view *t, int64_t i)
{
    uint32_t w;

    memcpy(&w, (const uint8_t *)t->data + 4 * i, 4);
    return w;
}

#endif
