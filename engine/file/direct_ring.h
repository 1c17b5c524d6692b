/* Several reads of a weight file in flight at a time, started and awaited by one thread: with
 * io_uring if the kernel has it and permits it, else one after another (several threads then keep a
 * disk busy). Owner and thread: the creator; the direct file outlives it. After new nothing is
 * allocated. */
#ifndef ENGINE_FILE_DIRECT_RING_H
#define ENGINE_FILE_DIRECT_RING_H

#include "engine/file/direct.h"

#define DIRECT_RING_MOST 8

struct direct_ring;

/* depth: most reads in flight, up to DIRECT_RING_MOST; with 1 io_uring is not used. ERR_MEMORY. */
int direct_ring_new(struct direct_ring **out, const struct direct_file *d, int depth,
                    struct error *e);
void direct_ring_free(struct direct_ring *r); /* no read may be in flight; NULL: nothing */
/* Most reads in flight: depth, or 1 without io_uring. */
int direct_ring_depth(const struct direct_ring *r);
/* Starts a direct_read, under a free number below depth. The caller owns buffer, and must keep it
 * until next has returned that number. */
void direct_ring_begin(struct direct_ring *r, int number, const struct tensor_view *t,
                       size_t offset, size_t bytes, uint8_t *buffer);
/* Waits until any read is done: returns its number, free again. *at: as direct_read returns it,
 * NULL with an error. At least one must be in flight. */
int direct_ring_next(struct direct_ring *r, const uint8_t **at, struct error *e);

#endif
