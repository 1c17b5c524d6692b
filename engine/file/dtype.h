/* Element types of weights: one table. Pure data, any thread. Block formats as in ggml's
 * ggml-common.h / gguf docs. */
#ifndef ENGINE_FILE_DTYPE_H
#define ENGINE_FILE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* name, GGUF type id, elements a block, bytes a block, word, safetensors spelling or NULL */
/* clang-format off */
#define DTYPE_TABLE(X)                              \
    X(DTYPE_F32,     0,   1,   4, "f32",    "F32")  \
    X(DTYPE_F16,     1,   1,   2, "f16",    "F16")  \
    X(DTYPE_BF16,   30,   1,   2, "bf16",   "BF16") \
    X(DTYPE_Q8_0,    8,  32,  34, "q8_0",   NULL)   \
    X(DTYPE_Q4_0,    2,  32,  18, "q4_0",   NULL)   \
    X(DTYPE_Q4_1,    3,  32,  20, "q4_1",   NULL)   \
    X(DTYPE_Q5_0,    6,  32,  22, "q5_0",   NULL)   \
    X(DTYPE_Q5_1,    7,  32,  24, "q5_1",   NULL)   \
    X(DTYPE_Q4_K,   12, 256, 144, "q4_k",   NULL)   \
    X(DTYPE_Q5_K,   13, 256, 176, "q5_k",   NULL)   \
    X(DTYPE_Q6_K,   14, 256, 210, "q6_k",   NULL)   \
    X(DTYPE_IQ4_NL, 20,  32,  18, "iq4_nl", NULL)   \
    X(DTYPE_I32,    26,   1,   4, "i32",    "I32")  \
    X(DTYPE_I64,    27,   1,   8, "i64",    "I64")
/* clang-format on */

enum dtype {
#define X(name, gguf, elements, bytes, word, st) name,
    DTYPE_TABLE(X)
#undef X
        DTYPE_COUNT
};

struct dtype_info {
    const char *word;        /* lower case, as flags and messages spell it */
    const char *safetensors; /* or NULL */
    int gguf;                /* GGUF type id */
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
