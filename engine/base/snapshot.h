/* A triple buffer: one writer publishes whole states, one reader always gets the newest whole
 * state, and neither waits. It manages slot numbers 0..2; the caller keeps an array of three
 * objects. Why not a seqlock: readers of a plain struct under a seqlock race. */
#ifndef ENGINE_BASE_SNAPSHOT_H
#define ENGINE_BASE_SNAPSHOT_H

#include "engine/base/one_thread.h"

#include <assert.h>
#include <stdatomic.h>

struct snapshot {
    atomic_uint middle;   /* slot in flight; SNAPSHOT_FRESH: not yet read */
    unsigned write, read; /* the writer's and the reader's own slots */
    struct one_thread writer, reader;
};

#define SNAPSHOT_FRESH 4u

static inline void snapshot_init(struct snapshot *s)
{
    *s = (struct snapshot){.write = 0, .read = 2};
    atomic_init(&s->middle, 1u);
}

/* The slot to fill; the writer's until snapshot_publish. */
static inline unsigned snapshot_write_slot(struct snapshot *s)
{
    assert(one_thread(&s->writer) && s->write < 3);
    return s->write;
}

static inline void snapshot_publish(struct snapshot *s)
{
    assert(one_thread(&s->writer));
    s->write =
        atomic_exchange_explicit(&s->middle, s->write | SNAPSHOT_FRESH, memory_order_acq_rel) & 3u;
}

/* The slot with the newest state; the reader's until its next call. *fresh (may be NULL): whether
 * it changed. */
static inline unsigned snapshot_read_slot(struct snapshot *s, int *fresh)
{
    int is_new = (atomic_load_explicit(&s->middle, memory_order_relaxed) & SNAPSHOT_FRESH) != 0;

    assert(one_thread(&s->reader) && s->read < 3);
    if (is_new)
        s->read = atomic_exchange_explicit(&s->middle, s->read, memory_order_acq_rel) & 3u;
    if (fresh)
        *fresh = is_new;
    return s->read;
}

#endif
