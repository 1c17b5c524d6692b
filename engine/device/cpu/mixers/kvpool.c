/* The pages of the key/value cache and who has them: sessions take pages as they grow and give them
 * back when they end. Engine thread; only opening a state allocates. A session's table and the
 * pages for its whole context are there when it is open, so a job never finds the pool empty; the
 * system gives memory to pages that are written. */
#include "engine/base/mem.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/cpu.h"

#include <string.h>

/* Room for a session's pages more. */
static int add_segment(struct cpu_device *d, struct error *e)
{
    struct kv_pool *p = &d->pool_kv;
    size_t pages = (size_t)d->chunks_max, n = (size_t)p->n_segments + 1;
    uint8_t **segments = mem_resize(p->segments, n, sizeof *segments), **list;

    p->segments = segments ? segments : p->segments;
    list = segments ? mem_resize(p->free, n * pages, sizeof *list) : NULL;
    p->free = list ? list : p->free;
    if (!list || !(segments[n - 1] = mem_pages(d->kv_bytes)))
        return error_set(
            e, ERR_MEMORY,
            "no memory for a key/value cache of %d tokens (%.1f MiB); use a smaller context (-c)",
            d->context, (double)d->kv_bytes / 1048576.0);
    topology_interleave(segments[n - 1], d->kv_bytes);
    p->n_segments++;
    for (size_t i = pages; i-- > 0;) /* the first one is taken first */
        p->free[p->n_free++] = segments[n - 1] + i * d->page_bytes;
    d->stats.kv_bytes += d->kv_bytes;
    return 0;
}

int kv_state_open(struct cpu_device *d, int session, struct error *e)
{
    struct kv_pool *p = &d->pool_kv;
    struct kv_state *states, *s;
    int rc;

    if (session < 0 || (session < p->n_states && p->states[session].pages))
        return error_set(e, ERR_DEVICE, "session %d is open already", session);
    if (session >= p->n_states) {
        if (!(states = mem_resize(p->states, (size_t)session + 1, sizeof *states)))
            return error_set(e, ERR_MEMORY, "no memory for session %d", session);
        memset(states + p->n_states, 0, (size_t)(session + 1 - p->n_states) * sizeof *states);
        p->states = states;
        p->n_states = session + 1;
    }
    if (p->n_open == p->n_segments && (rc = add_segment(d, e)) < 0)
        return rc;
    s = &p->states[session];
    if ((rc = fixed_open(d, s, e)) < 0)
        return rc;
    if (!(s->pages = mem_alloc((size_t)d->chunks_max, sizeof *s->pages))) {
        fixed_close(d, s);
        return error_set(e, ERR_MEMORY, "no memory for session %d", session);
    }
    p->n_open++;
    return 0;
}

void kv_state_close(struct cpu_device *d, int session)
{
    struct kv_pool *p = &d->pool_kv;
    struct kv_state *s = session >= 0 && session < p->n_states ? &p->states[session] : NULL;

    if (!s || !s->pages)
        return;
    for (int i = d->chunks_max; i-- > 0;)
        if (s->pages[i])
            p->free[p->n_free++] = s->pages[i];
    fixed_close(d, s);
    mem_free(s->pages);
    s->pages = NULL;
    p->n_open--;
}

void kv_pool_release(struct cpu_device *d)
{
    struct kv_pool *p = &d->pool_kv;

    for (int i = 0; i < p->n_states; i++) {
        fixed_close(d, &p->states[i]);
        mem_free(p->states[i].pages);
    }
    for (int i = 0; i < p->n_segments; i++)
        mem_pages_free(p->segments[i], d->kv_bytes);
    mem_free(p->states);
    mem_free(p->segments);
    mem_free(p->free);
}

const struct kv_state *kv_state_reserve(struct cpu_device *d, int session, int end, struct error *e)
{
    struct kv_pool *p = &d->pool_kv;
    struct kv_state *s = session >= 0 && session < p->n_states ? &p->states[session] : NULL;
    int chunks = (end + NUM_CHUNK - 1) / NUM_CHUNK, from = chunks;

    if (!s || !s->pages) {
        error_set(e, ERR_DEVICE, "session %d is not open on this device", session);
        return NULL;
    }
    while (from > 0 && !s->pages[from - 1])
        from--;
    for (; from < chunks; from++)
        s->pages[from] = p->free[--p->n_free];
    return s;
}
