/* A queue for one producer and one consumer that never blocks and never loses an element: a chain
 * of fixed segments that grows by one segment when the consumer is slow. Why not a fixed ring: a
 * stopped reader must neither block the producer for ever nor lose a token, and the backlog is
 * bounded by the answer's length anyway. Two segments are allocated at init and recycled, so the
 * steady state allocates nothing, and without any memory left a push succeeds as soon as the reader
 * has caught up: nobody waits for ever. ring_push: the producer's thread. ring_pop: the consumer's.
 * init and release: when no other thread uses it. */
#ifndef ENGINE_BASE_RING_H
#define ENGINE_BASE_RING_H

#include "engine/base/one_thread.h"

#include <stdatomic.h>
#include <stddef.h>

#define RING_SEGMENT 256 /* elements per segment */

struct ring_segment;

struct ring {
    size_t element;                       /* bytes */
    struct ring_segment *tail;            /* owned by the producer */
    struct ring_segment *head;            /* owned by the consumer */
    size_t taken;                         /* the consumer's: elements of head already popped */
    _Atomic(struct ring_segment *) spare; /* an empty segment for reuse */
    struct one_thread producer, consumer; /* who pushes, who pops */
};

int ring_init(struct ring *r, size_t element); /* 0, or -1: no memory */
/* pop remaining elements first; they are not released */
void ring_release(struct ring *r);
/* 0, or -1 if memory for a further segment is lacking: nothing was queued; wait and retry. */
int ring_push(struct ring *r, const void *element);
int ring_pop(struct ring *r, void *element); /* 1: filled, 0: empty */
/* The consumer's thread has ended: another one pops from now on. */
void ring_hand_over(struct ring *r);

#endif
