/* Inside engine/file only: common parts of the formats, and the vtable behind weights.h. Thread:
 * see weights.h. */
#ifndef ENGINE_FILE_READER_H
#define ENGINE_FILE_READER_H

#include "engine/base/mapping.h"
#include "engine/file/override.h"
#include "engine/file/packing.h"
#include "engine/file/tensor.h"

#include <stdbool.h>

/* bytes of a tensor name; GGUF allows 64, Hugging Face names reach about 70 */
#define FILE_NAME_MAX 512
#define FILE_SHARDS_MAX 512

struct weight_file;

struct format_ops {
    enum weight_format format;
    const char *name;
    /* Fills maps, tensors and impl. path is the file, or the folder for formats with folders. */
    int (*open)(struct weight_file *f, const char *path, bool tokenizer_only, struct error *e);
    void (*close)(struct weight_file *f);
    struct meta_value (*meta)(const struct weight_file *f, const char *key);
    struct meta_value (*meta_at)(const struct meta_value *array, size_t i);
    /* NULL: the format has no entries to copy. */
    bool (*entry)(const struct weight_file *f, size_t i, const char **key, size_t *key_bytes,
                  const void **entry, size_t *bytes);
    /* NULL: the format has no such files */
    const void *(*aux)(const struct weight_file *f, const char *name, size_t *bytes);
};

struct stored_tensor {
    struct tensor_view view; /* first: a view's address is the entry's */
    int map;                 /* of weight_file.maps */
};

struct weight_file {
    const struct format_ops *ops;
    char *path;
    struct mapping *maps;
    int n_maps;
    struct stored_tensor *tensors; /* in file order */
    size_t n_tensors, tensor_room;
    uint32_t *by_name; /* tensor indexes sorted by name */
    uint64_t bytes;
    struct overrides overrides; /* a copy */
    struct packing packing;     /* from `open` */
    struct packed *packed;      /* of the packed tensors */
    size_t n_packed;
    void *impl;
};

extern const struct format_ops format_gguf, format_safetensors;

/* A new mapping of f; its index, or a negative code. */
int file_map(struct weight_file *f, const char *path, struct error *e);
/* Adds a tensor whose range was checked against its mapping; copies the name (n bytes). */
int file_tensor(struct weight_file *f, int map, const char *name, size_t name_bytes,
                enum dtype type, int n_dims, const int64_t *dims, size_t offset, size_t bytes,
                struct error *e);
/* The tensor of that name, once they are sorted; NULL: none. */
const struct tensor_view *file_find(const struct weight_file *f, const char *name);
/* Elements of a shape and their bytes in this type. Errors name the tensor: dimensions below 1 or
 * whose product overflows, rows that are no multiple of the type's block. */
int file_shape_bytes(const char *path, const char *name, enum dtype type, int n_dims,
                     const int64_t *dims, size_t *bytes, struct error *e);

#endif
