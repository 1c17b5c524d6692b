/* See ring.h. A segment belongs to the producer until it links the next one, from then on to the
 * consumer, who frees it. */
#include "engine/base/ring.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <string.h>

struct ring_segment {
    atomic_size_t filled; /* elements readable */
    _Atomic(struct ring_segment *) next;
    _Alignas(max_align_t) unsigned char data[];
};

static struct ring_segment *segment_new(const struct ring *r)
{
    return mem_alloc(1, sizeof(struct ring_segment) + RING_SEGMENT * r->element);
}

int ring_init(struct ring *r, size_t element)
{
    assert(element > 0);
    memset(r, 0, sizeof *r);
    r->element = element;
    r->head = r->tail = segment_new(r);
    atomic_store(&r->spare, segment_new(r));
    if (r->head && atomic_load(&r->spare))
        return 0;
    ring_release(r);
    return -1;
}

void ring_release(struct ring *r)
{
    struct ring_segment *next;

    for (struct ring_segment *s = r->head; s; s = next) {
        next = atomic_load(&s->next);
        mem_free(s);
    }
    mem_free(atomic_exchange(&r->spare, NULL));
    r->head = r->tail = NULL;
}

int ring_push(struct ring *r, const void *element)
{
    struct ring_segment *s = r->tail;
    size_t n = atomic_load_explicit(&s->filled, memory_order_relaxed);

    assert(one_thread(&r->producer));
    assert(element && n <= RING_SEGMENT);
    if (n == RING_SEGMENT) {
        struct ring_segment *fresh = atomic_exchange(&r->spare, NULL);

        if (fresh) {
            atomic_store_explicit(&fresh->filled, 0, memory_order_relaxed);
            atomic_store_explicit(&fresh->next, NULL, memory_order_relaxed);
        } else if (!(fresh = segment_new(r))) {
            return -1;
        }
        memcpy(fresh->data, element, r->element);
        atomic_store_explicit(&fresh->filled, 1, memory_order_relaxed);
        r->tail = fresh;
        atomic_store_explicit(&s->next, fresh, memory_order_release);
        return 0;
    }
    memcpy(s->data + n * r->element, element, r->element);
    atomic_store_explicit(&s->filled, n + 1, memory_order_release);
    return 0;
}

int ring_pop(struct ring *r, void *element)
{
    struct ring_segment *s = r->head;

    assert(one_thread(&r->consumer));
    assert(element && r->taken <= RING_SEGMENT);
    if (r->taken == RING_SEGMENT) {
        struct ring_segment *next = atomic_load_explicit(&s->next, memory_order_acquire);

        if (!next)
            return 0;
        r->head = next;
        r->taken = 0;
        mem_free(atomic_exchange(&r->spare, s));
        s = next;
    }
    if (r->taken == atomic_load_explicit(&s->filled, memory_order_acquire))
        return 0;
    memcpy(element, s->data + r->taken * r->element, r->element);
    r->taken++;
    return 1;
}

void ring_hand_over(struct ring *r)
{
    one_thread_hand_over(&r->consumer);
}
