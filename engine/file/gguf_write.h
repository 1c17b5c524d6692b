/* Writes a GGUF v3 file as a stream: metadata, then the list of tensors, then their bytes in the
 * same order. Everything goes to an unnamed file (if unsupported: NAME.PID.part in the target's
 * folder), which replaces the target only in gguf_write_finish (fsync, rename, fsync of the
 * folder): a crash, a full disk or a cancelled run leaves the old file or none, never half of one,
 * and a kill nothing at all. Owner: one thread. Errors are sticky: after the first one every call
 * returns it. ERR_IO, ERR_MEMORY. */
#ifndef ENGINE_FILE_GGUF_WRITE_H
#define ENGINE_FILE_GGUF_WRITE_H

#include "engine/base/error.h"
#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_writer;

int gguf_write_open(struct gguf_writer **out, const char *path, struct error *e);
/* path of the file's data until finish */
const char *gguf_write_temporary(const struct gguf_writer *w);

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes);
/* An array: its head, then exactly count elements. */
enum gguf_element { GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_U64 = 10 };
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_element type, size_t count);
void gguf_add_i32(struct gguf_writer *w, int32_t v);
void gguf_add_f32(struct gguf_writer *w, float v);
void gguf_add_u64(struct gguf_writer *w, uint64_t v);
void gguf_add_bool(struct gguf_writer *w, bool v);
void gguf_add_string(struct gguf_writer *w, const char *text, size_t bytes);
/* A complete entry copied from another file of version 2 or 3: key, type and value. */
void gguf_put_raw(struct gguf_writer *w, const void *entry, size_t bytes);

/* dims as in struct tensor_view: the slowest first. */
void gguf_write_tensor(struct gguf_writer *w, const char *name, enum dtype type, int n_dims,
                       const int64_t *dims);
/* Call after the last tensor was named: writes the head. The total of all tensors' bytes is checked
 * at finish. */
int gguf_write_begin(struct gguf_writer *w, struct error *e);
/* The next bytes of the current tensor; a complete tensor is padded, and the next one starts. */
int gguf_write_data(struct gguf_writer *w, const void *data, size_t bytes, struct error *e);
/* Flushes all bytes to disk, still under the temporary name. */
int gguf_write_sync(struct gguf_writer *w, struct error *e);
/* Replaces the target and frees w. */
int gguf_write_finish(struct gguf_writer *w, struct error *e);
/* removes the temporary file and frees; accepts NULL */
void gguf_write_abort(struct gguf_writer *w);

#endif
