/* Several reads of a weight file under way at a time, begun and waited for by one thread: by
 * io_uring where the kernel has it and lets us, else one after another (how several threads then
 * keep a disk busy). Owner and thread: who made it; the direct file outlives it. After new nothing
 * is allocated. */
#ifndef ENGINE_FILE_DIRECT_RING_H
#define ENGINE_FILE_DIRECT_RING_H

#include "engine/file/direct.h"

#define DIRECT_RING_MOST 8

struct direct_ring;

/* depth: reads under way at most, up to DIRECT_RING_MOST; of 1 the kernel's ring is not used.
 * ERR_MEMORY. */
int direct_ring_new(struct direct_ring **out, const struct direct_file *d, int depth,
                    struct error *e);
void direct_ring_free(struct direct_ring *r); /* nothing is under way; NULL: nothing */
/* How many can be under way: depth, or 1 where the kernel has no ring. */
int direct_ring_depth(const struct direct_ring *r);
/* Begins what direct_read does, under a number below depth that is free. buffer: the caller's,
 * until next has returned that number. */
void direct_ring_begin(struct direct_ring *r, int number, const struct tensor_view *t,
                       size_t offset, size_t bytes, uint8_t *buffer);
/* Waits until one is done, which one first is the disk's affair: its number, free again. *at: as
 * direct_read returns it, NULL with an error. At least one must be under way. */
int direct_ring_next(struct direct_ring *r, const uint8_t **at, struct error *e);

#endif
