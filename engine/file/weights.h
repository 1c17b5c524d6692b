/* Weight files behind one vtable, detected by content: a Hugging Face folder (config.json +
 * safetensors, sharded or not), a single .safetensors beside a config.json, GGUF v2/v3 (one or many
 * files). Memory-mapped read-only; every offset, count and string is bounds-checked at open, so a
 * view returned here can be read without further checks until weight_file_close. Owner: the caller
 * of open. After open the object is immutable: any thread may read. Errors: ERR_MODEL (damaged,
 * unknown), ERR_IO (cannot open/read). A file that shrinks after open raises SIGBUS: the guard of
 * engine/base/mapping.h lets the reader finish on zeros, and weight_file_check then returns
 * ERR_IO. */
#ifndef ENGINE_FILE_WEIGHTS_H
#define ENGINE_FILE_WEIGHTS_H

#include "engine/base/error.h"
#include "engine/file/override.h"
#include "engine/file/packing.h"
#include "engine/file/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weight_file;

/* path: a file or folder. tokenizer_only: weights may be absent (a folder without safetensors opens
 * with 0 tensors). */
int weight_file_open(struct weight_file **out, const char *path, bool tokenizer_only,
                     struct error *e);
void weight_file_close(struct weight_file *f);

enum weight_format weight_file_format(const struct weight_file *f);
const char *weight_file_path(const struct weight_file *f);
/* The packing of its matrices: packed tensors are shown as their unpacked equivalents (packed.h). A
 * file with an unsupported packing opens only with tokenizer_only. */
const struct packing *weight_file_packing(const struct weight_file *f);
uint64_t weight_file_bytes(const struct weight_file *f); /* sum of all tensors */
size_t weight_file_count(const struct weight_file *f);
const struct tensor_view *weight_file_at(const struct weight_file *f, size_t i);
/* NULL: none */
const struct tensor_view *weight_file_find(const struct weight_file *f, const char *name);
/* Sets overrides of the file's metadata (copied; NULL: none). Once per file. ERR_USAGE,
 * ERR_MEMORY. */
int weight_file_override(struct weight_file *f, const struct overrides *o, struct error *e);
/* META_NONE: none */
struct meta_value weight_file_meta(const struct weight_file *f, const char *key);
struct meta_value meta_at(const struct meta_value *array, size_t i);
/* Metadata entry i of a GGUF file (sorted by key), its raw bytes: key, type, value. false: no such
 * entry, or another format. */
bool weight_file_entry(const struct weight_file *f, size_t i, const char **key, size_t *key_bytes,
                       const void **entry, size_t *bytes);
/* Whole auxiliary file of a folder (tokenizer.json …): mapped bytes, NULL when absent or not a
 * folder. */
const void *weight_file_aux(const struct weight_file *f, const char *name, size_t *bytes);
/* ERR_IO once a mapped file has shrunk: results since then are worthless. One atomic load per
 * file. */
int weight_file_check(const struct weight_file *f, struct error *e);
/* Reads a tensor's pages ahead (want) in one system call; bytes from offset on. */
void weight_file_want(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                      size_t bytes);
/* Starts reading them from disk without waiting. */
void weight_file_ahead(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                       size_t bytes);
/* Lets the kernel drop a tensor's pages (bytes from offset on) after they were repacked. */
void weight_file_forget(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                        size_t bytes);
/* The file that contains mapped bytes, and their offset. false: none. */
struct weight_place {
    const char *path; /* of that file, */
    const void *file; /* all of it, */
    uint64_t size;    /* and so much; the weight file's */
    uint64_t offset;
};
bool weight_file_place(const struct weight_file *f, const void *data, size_t bytes,
                       struct weight_place *out);
/* 64-bit hash of names, shapes, types and sampled data: identifies a model in profiles, caches and
 * sessions. */
uint64_t weight_file_hash(const struct weight_file *f);

#endif
