/* Contents of a weight file: views of tensors and metadata values. Plain data; both point into the
 * file (engine/file/weights.h) and are valid until it is closed. */
#ifndef ENGINE_FILE_TENSOR_H
#define ENGINE_FILE_TENSOR_H

#include "engine/file/dtype.h"

#include <stddef.h>
#include <stdint.h>

#define TENSOR_DIMS 6 /* for tensors that are not computed, such as images: GGUF itself has 4 */

struct packed;

/* Row-major view. dims[0] is the slowest; the last one is contiguous (GGUF's order is reversed on
 * reading). For a packed matrix (packed.h) name, type and dims are those of the unpacked one, data
 * and bytes those of its codes in the file: see `packed` for their meaning. */
struct tensor_view {
    const char *name;
    uint32_t index; /* of weight_file_at */
    enum dtype type;
    int n_dims;
    int64_t dims[TENSOR_DIMS];
    const void *data; /* maybe unaligned; inside the mapping */
    size_t bytes;
    const struct packed *packed; /* NULL: data are rows of that type */
};

enum weight_format { WEIGHT_SAFETENSORS, WEIGHT_GGUF };

enum meta_type { META_NONE, META_INT, META_FLOAT, META_BOOL, META_STRING, META_ARRAY };

/* A metadata value. GGUF: the key. Hugging Face: a dotted path in config.json
 * ("rope_scaling.short_factor"); other JSON files of the folder with "file.json:path"
 * (generation_config.json, tokenizer_config.json). */
struct meta_value {
    enum meta_type type;
    int64_t i;                 /* META_INT, META_BOOL */
    double f;                  /* META_FLOAT and META_INT */
    const char *s;             /* META_STRING: not NUL-terminated in GGUF: use len */
    size_t len;                /* string bytes, or elements of an array */
    const void *array;         /* private: the format's own array */
    enum weight_format origin; /* private: its format */
};

#endif
