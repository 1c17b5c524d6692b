/* Writing a GGUF v3 file as a stream: metadata, then the list of tensors, then their bytes in the
 * same order. Everything goes to a file without a name (where there are none: beside the target,
 * NAME.PID.part), which takes the target's place only in gguf_write_finish (fsync, rename, fsync of
 * the folder): a crash, a full disk or a cancelled run leaves the old file or none, never half of
 * one, and a kill nothing at all. Owner: one thread. Errors stick: after the first one every call
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
/* where the bytes are until finish */
const char *gguf_write_temporary(const struct gguf_writer *w);

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes);
/* An array: its head, then exactly count elements. */
enum gguf_element { GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8 };
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_element type, size_t count);
void gguf_add_i32(struct gguf_writer *w, int32_t v);
void gguf_add_f32(struct gguf_writer *w, float v);
void gguf_add_bool(struct gguf_writer *w, bool v);
void gguf_add_string(struct gguf_writer *w, const char *text, size_t bytes);
/* A whole entry as another file of version 2 or 3 has it: key, type and value. */
void gguf_put_raw(struct gguf_writer *w, const void *entry, size_t bytes);

/* dims as in struct tensor_view: the slowest first. */
void gguf_write_tensor(struct gguf_writer *w, const char *name, enum dtype type, int n_dims,
                       const int64_t *dims);
/* After the last tensor was named: writes the head. The sum of all tensors' bytes is checked at
 * finish. */
int gguf_write_begin(struct gguf_writer *w, struct error *e);
/* The next bytes of the tensor now being written; a tensor that is complete is padded, and the next
 * one begins. */
int gguf_write_data(struct gguf_writer *w, const void *data, size_t bytes, struct error *e);
/* All bytes to the disk, still under the temporary name. */
int gguf_write_sync(struct gguf_writer *w, struct error *e);
/* Takes the target's place and frees w. */
int gguf_write_finish(struct gguf_writer *w, struct error *e);
/* removes the temporary file and frees; accepts NULL */
void gguf_write_abort(struct gguf_writer *w);

#endif
