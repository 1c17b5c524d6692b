/* Element types of weights: floats and integers in the tables here, quantised formats in
 * formats.def. Pure data, any thread. Block formats as in ggml's ggml-common.h / gguf docs. */
#ifndef ENGINE_FILE_DTYPE_H
#define ENGINE_FILE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
/* name, GGUF type id (-1: none), bytes, word, safetensors spelling */
#define DTYPE_FLOATS(X)           \
    X(F32,   0, 4, "f32",  "F32") \
    X(F16,   1, 2, "f16",  "F16") \
    X(BF16, 30, 2, "bf16", "BF16") \
    X(F8,   -1, 1, "f8",   NULL)
/* and the components of packed matrices (packed.h) */
#define DTYPE_INTEGERS(X)         \
    X(I32,  26, 4, "i32",  "I32") \
    X(I64,  27, 8, "i64",  "I64") \
    X(U8,   -1, 1, "u8",   "U8")  \
    X(E4M3, -1, 1, "e4m3", "F8_E4M3")

enum dtype {
#define X(name, ...) DTYPE_##name,
    DTYPE_FLOATS(X)
#define FORMAT(id, ...) DTYPE_##id,
#include "engine/file/formats.def"
    DTYPE_INTEGERS(X)
#undef X
    DTYPE_COUNT
};
/* clang-format on */

/* How files store a superblock's scale: a half, or a power of two (E8M0: 2^(e-128), half of its
 * value in OCP's MX formats, since the values are doubled here). The words of a superblock may
 * contain a half whose digits are spread over other fields, and scales per half block, a byte each
 * (E4M3 without a sign, halved for the same reason). Or a half and one or two fields of 16 bits
 * behind it, which belong to the words. Or an F32 number, which is packed like two halves. */
enum scale_kind {
    SCALE_F16,
    SCALE_E8M0,
    SCALE_SPREAD,
    SCALE_E4M3,
    SCALE_F16_1,
    SCALE_F16_2,
    SCALE_F32
};
#define SCALE_BYTES(kind)        \
    ((kind) == SCALE_F16     ? 2 \
     : (kind) == SCALE_F16_1 ? 4 \
     : (kind) == SCALE_F32   ? 4 \
     : (kind) == SCALE_F16_2 ? 6 \
     : (kind) == SCALE_E8M0  ? 1 \
                             : 0)
#define SCALE_IS_F16(kind) ((kind) == SCALE_F16 || (kind) == SCALE_F16_1 || (kind) == SCALE_F16_2)

/* Bytes of a quantised superblock's head, and of 32 codes in a block: columns of formats.def. */
#define DTYPE_HEAD(scale, minimum, factors, halves) \
    (SCALE_BYTES(scale) + ((minimum) ? 2 : 0) +     \
     ((factors) == 2 ? 6                            \
      : (factors)    ? 12                           \
                     : 0) +                            \
     ((halves) ? 16 : 0))
#define DTYPE_CODES(bits, high) (4 * ((bits) + (high)))

/* A row of F8, the one type whose rows are more than their elements: of every 128 columns, the last
 * of which may be fewer, an F32 factor and then a byte each, E4M3 (OCP OFP8). Read as the F16 whose
 * bits it has (num_from_e4m3_half), which is its value / 256, it is multiplied with the factor:
 * 256 * the scale of the file; F32, rounded once. The order of the bytes: f8.h. */
#define F8_BLOCK 128
#define F8_BLOCK_BYTES (F8_BLOCK + 4)

struct dtype_info {
    const char *word;        /* lower case, as flags and messages spell it */
    const char *safetensors; /* or NULL */
    int gguf;                /* GGUF type id; -1: none */
    int block;               /* elements a block */
    int bytes;               /* bytes a block */
};

const struct dtype_info *dtype_info(enum dtype type);
int dtype_from_word(const char *word);        /* -1: no such type; case does not matter */
int dtype_from_gguf(uint32_t id);             /* -1: not supported */
int dtype_from_safetensors(const char *name); /* -1 */
int dtype_is_quantised(enum dtype type);      /* block > 1 */
/* 0 when cols is no multiple of the block */
size_t dtype_row_bytes(enum dtype type, int64_t cols);

#endif
