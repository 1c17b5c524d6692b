/* See direct_ring.h. Uses the kernel's interface from <linux/io_uring.h> directly: three calls, for
 * which a library would be an extra dependency. */
#include "engine/file/direct_ring.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/io_uring.h>
#endif

/* A queue shared by kernel and program: indices are not wrapped, but masked at use. */
struct shared {
    void *memory;
    size_t bytes;
    _Atomic unsigned *head, *tail;
    unsigned mask;
};

struct request {
    struct direct_span span;
    uint8_t *buffer;
    bool later; /* the kernel did not accept it: next reads it */
    bool busy;
};

struct direct_ring {
    const struct direct_file *file;
    int depth, fd; /* -1: not supported by the kernel */
    struct shared submit, complete;
    unsigned *order; /* of submit: entry at each position */
    struct io_uring_sqe *entries;
    size_t entries_bytes;
    const struct io_uring_cqe *done;
    struct request requests[DIRECT_RING_MOST];
};

#if defined(__linux__)
static void *map(int fd, size_t bytes, off_t what)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

    return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

static bool map_queues(struct direct_ring *r, const struct io_uring_params *p)
{
    struct shared *s = &r->submit, *c = &r->complete;
    uint8_t *at;

    s->bytes = p->sq_off.array + p->sq_entries * sizeof *r->order;
    c->bytes = p->cq_off.cqes + p->cq_entries * sizeof *r->done;
    r->entries_bytes = p->sq_entries * sizeof *r->entries;
    s->memory = map(r->fd, s->bytes, IORING_OFF_SQ_RING);
    c->memory = map(r->fd, c->bytes, IORING_OFF_CQ_RING);
    r->entries = map(r->fd, r->entries_bytes, IORING_OFF_SQES);
    if (!s->memory || !c->memory || !r->entries)
        return false;
    at = s->memory;
    s->head = (_Atomic unsigned *)(void *)(at + p->sq_off.head);
    s->tail = (_Atomic unsigned *)(void *)(at + p->sq_off.tail);
    s->mask = *(const unsigned *)(const void *)(at + p->sq_off.ring_mask);
    r->order = (unsigned *)(void *)(at + p->sq_off.array);
    at = c->memory;
    c->head = (_Atomic unsigned *)(void *)(at + p->cq_off.head);
    c->tail = (_Atomic unsigned *)(void *)(at + p->cq_off.tail);
    c->mask = *(const unsigned *)(const void *)(at + p->cq_off.ring_mask);
    r->done = (const struct io_uring_cqe *)(const void *)(at + p->cq_off.cqes);
    return true;
}

static void close_ring(struct direct_ring *r)
{
    unmap(r->entries, r->entries_bytes);
    unmap(r->complete.memory, r->complete.bytes);
    unmap(r->submit.memory, r->submit.bytes);
    r->entries = NULL;
    r->complete.memory = r->submit.memory = NULL;
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

static void open_ring(struct direct_ring *r)
{
    struct io_uring_params p = {0};

    r->fd = (int)syscall(SYS_io_uring_setup, (unsigned)r->depth, &p);
    if (r->fd >= 0 && !map_queues(r, &p))
        close_ring(r);
}

/* Submits requests to the kernel and waits for some; returns how many were accepted, negative: an
 * error. */
static long enter(const struct direct_ring *r, unsigned submit, unsigned wait)
{
    long rc;

    do
        rc = syscall(SYS_io_uring_enter, r->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0,
                     NULL, 0);
    while (rc < 0 && errno == EINTR && wait);
    return rc;
}

static bool submit(struct direct_ring *r, int number)
{
    const struct request *q = &r->requests[number];
    unsigned tail = atomic_load_explicit(r->submit.tail, memory_order_relaxed),
             at = tail & r->submit.mask;

    r->entries[at] = (struct io_uring_sqe){.opcode = IORING_OP_READ,
                                           .fd = q->span.fd,
                                           .off = (uint64_t)q->span.at,
                                           .addr = (uint64_t)(uintptr_t)q->buffer,
                                           .len = (unsigned)q->span.bytes,
                                           .user_data = (uint64_t)number};
    r->order[at] = at;
    atomic_store_explicit(r->submit.tail, tail + 1, memory_order_release);
    if (enter(r, 1, 0) == 1)
        return true;
    atomic_store_explicit(r->submit.tail, tail, memory_order_release); /* it was not accepted */
    return false;
}

/* The number of the next completed read, and its result. */
static int wait_kernel(struct direct_ring *r, ssize_t *got)
{
    unsigned head = atomic_load_explicit(r->complete.head, memory_order_relaxed);
    const struct io_uring_cqe *c = &r->done[head & r->complete.mask];
    int number;

    while (head == atomic_load_explicit(r->complete.tail, memory_order_acquire))
        enter(r, 0, 1);
    number = (int)c->user_data;
    *got = c->res;
    atomic_store_explicit(r->complete.head, head + 1, memory_order_release);
    return number;
}

#else
static void close_ring(struct direct_ring *r)
{
}

static void open_ring(struct direct_ring *r)
{
}

static bool submit(struct direct_ring *r, int number)
{
    return false;
}

static int wait_kernel(struct direct_ring *r, ssize_t *got)
{
    assert(false); /* submit accepts none */
    return -1;
}
#endif

int direct_ring_new(struct direct_ring **out, const struct direct_file *d, int depth,
                    struct error *e)
{
    struct direct_ring *r = mem_alloc(1, sizeof *r);

    assert(depth >= 1 && depth <= DIRECT_RING_MOST);
    *out = r;
    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory for reading experts");
    r->file = d;
    r->depth = depth;
    r->fd = -1;
    if (depth > 1)
        open_ring(r);
    if (r->fd < 0)
        r->depth = 1;
    return 0;
}

void direct_ring_free(struct direct_ring *r)
{
    if (!r)
        return;
    for (int i = 0; i < DIRECT_RING_MOST; i++)
        assert(!r->requests[i].busy);
    close_ring(r);
    mem_free(r);
}

int direct_ring_depth(const struct direct_ring *r)
{
    return r->depth;
}

void direct_ring_begin(struct direct_ring *r, int number, const struct tensor_view *t,
                       size_t offset, size_t bytes, uint8_t *buffer)
{
    struct request *q = &r->requests[number];

    assert(number < r->depth && !q->busy);
    *q = (struct request){
        .span = direct_span(r->file, t, offset, bytes), .buffer = buffer, .busy = true};
    q->later = r->fd < 0 || q->span.bytes > INT32_MAX || !submit(r, number);
}

static int one_later(const struct direct_ring *r)
{
    for (int i = 0; i < r->depth; i++)
        if (r->requests[i].busy && r->requests[i].later)
            return i;
    return -1;
}

int direct_ring_next(struct direct_ring *r, const uint8_t **at, struct error *e)
{
    int number = one_later(r);
    ssize_t got = 0;
    struct request *q;

    if (number < 0)
        number = wait_kernel(r, &got);
    q = &r->requests[number];
    assert(q->busy);
    q->busy = false;
    *at = direct_finish(r->file, &q->span, q->buffer, got, e);
    return number;
}
