/* See direct_rate.h. The pieces have the size used for reading experts. */
#include "engine/file/direct_rate.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/file/direct_ring.h"

#include <assert.h>

#define PIECE ((size_t)1 << 20)
#define STEP 7919 /* a prime: the order of pieces is unpredictable for a disk */

struct source {
    const struct weight_file *file;
    size_t n, at; /* number of pieces, index of the next */
};

static size_t pieces_of(const struct tensor_view *t)
{
    return t->packed ? 0 : t->bytes / PIECE;
}

static size_t count_pieces(const struct weight_file *f)
{
    size_t n = 0;

    for (size_t i = 0; i < weight_file_count(f); i++)
        n += pieces_of(weight_file_at(f, i));
    return n;
}

static void begin(struct source *s, struct direct_ring *r, int number, uint8_t *buffer)
{
    size_t left = s->at, i = 0;

    s->at = (s->at + STEP) % s->n;
    for (; left >= pieces_of(weight_file_at(s->file, i)); i++)
        left -= pieces_of(weight_file_at(s->file, i));
    direct_ring_begin(r, number, weight_file_at(s->file, i), left * PIECE, PIECE, buffer);
}

/* Bytes a second; 0: a read failed. */
static double measure(struct source *s, struct direct_ring *r, uint8_t *buffers, int ms)
{
    uint64_t start = clock_now(), end = start + (uint64_t)ms * CLOCK_MILLI, bytes = 0;
    int depth = direct_ring_depth(r), pending = 0;
    bool failed = false;

    while (pending < depth) {
        begin(s, r, pending, buffers + (size_t)pending * direct_room(PIECE));
        pending++;
    }
    while (pending) {
        struct error ignored;
        const uint8_t *at;
        int number = direct_ring_next(r, &at, &ignored);

        failed |= !at;
        bytes += PIECE;
        if (!failed && clock_now() < end)
            begin(s, r, number, buffers + (size_t)number * direct_room(PIECE));
        else
            pending--;
    }
    return failed ? 0 : clock_rate((double)bytes, clock_now() - start);
}

double direct_rate(const struct weight_file *f, int at_once, int ms)
{
    struct source s = {.file = f, .n = count_pieces(f)};
    size_t room = (size_t)at_once * direct_room(PIECE);
    struct direct_ring *r = NULL;
    struct direct_file *d = NULL;
    uint8_t *buffers = NULL;
    struct error ignored;
    double rate = 0;

    assert(at_once > 0 && at_once <= DIRECT_RING_MOST);
    if (s.n >= (size_t)at_once && direct_open(&d, f, &ignored) == 0 && direct_bypasses(d) &&
        direct_ring_new(&r, d, at_once, &ignored) == 0 && (buffers = mem_pages(room)))
        rate = measure(&s, r, buffers, ms);
    if (buffers)
        mem_pages_free(buffers, room);
    direct_ring_free(r);
    direct_close(d);
    return rate;
}
