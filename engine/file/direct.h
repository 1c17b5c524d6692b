/* Reading pieces of a weight file past the page cache: for weights that are read again and again
 * and never stay, whose pages would only push others out. Where the file system knows no O_DIRECT
 * the page cache is used and told to forget. The files are opened once: one that is removed
 * meanwhile is read all the same, one that changes is not. Owner: the caller of open; the weight
 * file outlives it. After open any thread reads; nothing is allocated. */
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
/* Room that reading so many bytes takes. */
size_t direct_room(size_t bytes);
/* Bytes of a tensor from offset on, into buffer (direct_room, aligned to DIRECT_ALIGN). Returns
 * where in it they begin; NULL with ERR_IO: the file is shorter than it was or was written to since
 * open, or the disk failed. */
const uint8_t *direct_read(const struct direct_file *d, const struct tensor_view *t, size_t offset,
                           size_t bytes, uint8_t *buffer, struct error *e);

/* The same for who reads by other means (direct_ring.h): what to read, and what to make of it. */
struct direct_span {
    int fd, part;
    int64_t at;   /* in the file, aligned, as bytes are */
    size_t bytes; /* to ask for: the file may end before */
    size_t head;  /* of them before what is wanted */
    size_t least; /* that must come, head included */
};

struct direct_span direct_span(const struct direct_file *d, const struct tensor_view *t,
                               size_t offset, size_t bytes);
/* got of its bytes are in buffer, or a negative errno; the others are read. Returns as direct_read
 * does. */
const uint8_t *direct_finish(const struct direct_file *d, const struct direct_span *s,
                             uint8_t *buffer, ssize_t got, struct error *e);
/* Whether reads pass the page cache by, for every file. */
bool direct_bypasses(const struct direct_file *d);

#endif
