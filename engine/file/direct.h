/* Reads pieces of a weight file with O_DIRECT, bypassing the page cache: for weights that are read
 * repeatedly but not kept, whose pages would only evict others. Without O_DIRECT support the page
 * cache is used and then dropped. The files are opened once: one that is removed meanwhile is still
 * read, one that changes is not. Owner: the caller of open; the weight file outlives it. After open
 * any thread reads; nothing is allocated. */
#ifndef ENGINE_FILE_DIRECT_H
#define ENGINE_FILE_DIRECT_H

#include "engine/base/error.h"
#include "engine/file/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DIRECT_ALIGN 4096 /* of buffers and of what is read */

struct direct_file;

/* ERR_IO, ERR_MEMORY. */
int direct_open(struct direct_file **out, const struct weight_file *f, struct error *e);
void direct_close(struct direct_file *d); /* accepts NULL */
/* Size of the buffer for reading so many bytes. */
size_t direct_room(size_t bytes);
/* Reads bytes of a tensor from offset on into buffer (direct_room, aligned to DIRECT_ALIGN).
 * Returns their start in it; NULL with ERR_IO: the file shrank or was written to since open, or the
 * disk failed. */
const uint8_t *direct_read(const struct direct_file *d, const struct tensor_view *t, size_t offset,
                           size_t bytes, uint8_t *buffer, struct error *e);

/* The same for other read methods (direct_ring.h): what to read, and how to use the result. */
struct direct_span {
    int fd, part;
    int64_t at;   /* in the file, aligned, as bytes are */
    size_t bytes; /* to request: the file may end before */
    size_t head;  /* bytes before the wanted ones */
    size_t least; /* minimum to be read, head included */
};

struct direct_span direct_span(const struct direct_file *d, const struct tensor_view *t,
                               size_t offset, size_t bytes);
/* Completes a read of `got` bytes into buffer, or a negative errno; reads the rest. Returns as
 * direct_read does. */
const uint8_t *direct_finish(const struct direct_file *d, const struct direct_span *s,
                             uint8_t *buffer, ssize_t got, struct error *e);
/* Whether reads bypass the page cache, for every file. */
bool direct_bypasses(const struct direct_file *d);

#endif
