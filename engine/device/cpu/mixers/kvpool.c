/* The pages of the key/value cache and their owners: sessions take pages as they grow and release
 * them when they end or rewind. Sessions with a common prefix share its whole pages; a page returns
 * to the pool when its last user releases it. Engine thread; only opening a state allocates. A
 * session's table and the pages for its whole context exist once it is open, so a job never finds
 * the pool empty; the system provides memory when pages are written. */
#include "engine/base/mem.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/cpu.h"

#include <string.h>

static struct kv_page *page_of(const struct cpu_device *d, const uint8_t *page)
{
    const struct kv_pool *p = &d->pool_kv;

    for (int i = 0; i < p->n_segments; i++)
        if (page >= p->segments[i] && page < p->segments[i] + d->kv_bytes)
            return &p->of[(size_t)i * (size_t)d->chunks_max +
                          (size_t)(page - p->segments[i]) / d->page_bytes];
    return NULL;
}

static uint8_t *take_page(struct cpu_device *d)
{
    struct kv_pool *p = &d->pool_kv;
    uint8_t *page = p->free[--p->n_free];

    *page_of(d, page) = (struct kv_page){.users = 1, .written = true};
    return page;
}

/* The last user returns it to the pool. */
static void give_page(struct cpu_device *d, uint8_t *page)
{
    struct kv_pool *p = &d->pool_kv;

    if (page && --page_of(d, page)->users == 0)
        p->free[p->n_free++] = page;
}

/* Address space for as many segments as there may ever be, which costs nothing; for fewer, where
 * there is less of it. */
static void reserve(struct cpu_device *d)
{
    struct kv_pool *p = &d->pool_kv;

    for (p->room = SEGMENTS_MOST; p->room >= SEGMENTS_LEAST; p->room /= 2)
        if ((size_t)p->room * d->segment_bytes <= RESERVED_MOST || p->room == SEGMENTS_LEAST)
            if ((p->memory = mem_reserve((size_t)p->room * d->segment_bytes)))
                return;
    p->room = 0;
}

/* Memory for segment n: behind the others, so that devices may use all of them in place. */
static uint8_t *take_segment(struct cpu_device *d, int n)
{
    struct kv_pool *p = &d->pool_kv;

    if (!n && !p->memory)
        reserve(d);
    if (n < p->room) {
        uint8_t *at = p->memory + (size_t)n * d->segment_bytes;

        return mem_reserve_use(at, d->segment_bytes) ? at : NULL;
    }
    p->apart = true;
    return mem_pages(d->segment_bytes);
}

static void release_segments(struct cpu_device *d)
{
    struct kv_pool *p = &d->pool_kv;
    int within = p->n_segments < p->room ? p->n_segments : p->room;

    for (int i = within; i < p->n_segments; i++)
        mem_pages_free(p->segments[i], d->segment_bytes);
    mem_reserve_free(p->memory, (size_t)p->room * d->segment_bytes,
                     (size_t)within * d->segment_bytes);
}

/* Adds the pages of one more session. */
static int add_segment(struct cpu_device *d, struct error *e)
{
    struct kv_pool *p = &d->pool_kv;
    size_t pages = (size_t)d->chunks_max, n = (size_t)p->n_segments + 1;

    if (!MEM_FIT(p->segments, n) || !MEM_FIT(p->of, n * pages) || !MEM_FIT(p->free, n * pages) ||
        !(p->segments[n - 1] = take_segment(d, (int)n - 1)))
        return error_set(
            e, ERR_MEMORY,
            "no memory for a key/value cache of %d tokens (%.1f MiB); use a smaller context (-c)",
            d->context, (double)d->kv_bytes / 1048576.0);
    topology_interleave(p->segments[n - 1], d->kv_bytes);
    p->n_segments++;
    memset(p->of + (n - 1) * pages, 0, pages * sizeof *p->of);
    for (size_t i = pages; i-- > 0;) /* the first one is taken first */
        p->free[p->n_free++] = p->segments[n - 1] + i * d->page_bytes;
    d->stats.kv_bytes += d->kv_bytes;
    return 0;
}

int kv_state_open(struct cpu_device *d, int session, struct error *e)
{
    struct kv_pool *p = &d->pool_kv;
    struct kv_state *s;
    int rc;

    if (session < 0 || (session < p->n_states && p->states[session].pages))
        return error_set(e, ERR_DEVICE, "session %d is open already", session);
    if (session >= p->n_states) {
        if (!MEM_FIT(p->states, session + 1))
            return error_set(e, ERR_MEMORY, "no memory for session %d", session);
        memset(p->states + p->n_states, 0, (size_t)(session + 1 - p->n_states) * sizeof *p->states);
        p->n_states = session + 1;
    }
    if (p->n_open == p->n_segments && (rc = add_segment(d, e)) < 0)
        return rc;
    s = &p->states[session];
    if ((rc = fixed_open(d, s, e)) < 0 || (rc = kv_rings_open(d, s, e)) < 0) {
        fixed_close(d, s);
        return rc;
    }
    if (!(s->pages = mem_alloc((size_t)d->chunks_max, sizeof *s->pages))) {
        kv_rings_close(d, s);
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
        give_page(d, s->pages[i]);
    kv_rings_close(d, s);
    fixed_close(d, s);
    mem_free(s->pages);
    s->pages = NULL;
    p->n_open--;
}

void kv_pool_release(struct cpu_device *d)
{
    struct kv_pool *p = &d->pool_kv;

    for (int i = 0; i < p->n_states; i++) {
        kv_rings_close(d, &p->states[i]);
        fixed_close(d, &p->states[i]);
        mem_free(p->states[i].pages);
    }
    release_segments(d);
    mem_free(p->states);
    mem_free(p->segments);
    mem_free(p->free);
    mem_free(p->of);
}

int kv_types_set(struct cpu_device *d, enum kv_type k, enum kv_type v, struct error *e)
{
    d->stats.kv_bytes -= (uint64_t)d->pool_kv.n_segments * d->kv_bytes;
    kv_pool_release(d);
    d->pool_kv = (struct kv_pool){0};
    mem_free(d->layouts);
    d->layouts = NULL;
    d->kv_k = d->base.config.kv_k = k;
    d->kv_v = d->base.config.kv_v = v;
    return kv_layout(d, e);
}

static struct kv_state *open_state(struct cpu_device *d, int session)
{
    struct kv_pool *p = &d->pool_kv;

    return session >= 0 && session < p->n_states && p->states[session].pages ? &p->states[session]
                                                                             : NULL;
}

/* Copies a shared page before it is written: after a rewind into its middle, the session continues
 * in a private copy. */
static void own_page(struct cpu_device *d, uint8_t **page)
{
    uint8_t *own;

    if (page_of(d, *page)->users == 1)
        return;
    own = take_page(d);
    memcpy(own, *page, d->page_bytes);
    give_page(d, *page);
    *page = own;
}

const struct kv_state *kv_state_reserve(struct cpu_device *d, int session, int pos, int end,
                                        struct error *e)
{
    struct kv_state *s = open_state(d, session);
    int chunks = (end + NUM_CHUNK - 1) / NUM_CHUNK, from = chunks;

    if (!s) {
        error_set(e, ERR_DEVICE, "session %d is not open on this device", session);
        return NULL;
    }
    while (from > 0 && !s->pages[from - 1])
        from--;
    for (int i = pos / NUM_CHUNK; i < from && d->pool_kv.n_open > 1; i++)
        own_page(d, &s->pages[i]);
    for (; from < chunks; from++)
        s->pages[from] = take_page(d);
    s->reach = s->reach > end ? s->reach : end;
    return s;
}

uint8_t *const *kv_state_pages(struct cpu_device *d, int session, int pos, int end, struct error *e)
{
    const struct kv_state *s = kv_state_reserve(d, session, pos, end, e);

    return s ? s->pages : NULL;
}

void kv_state_memory(const struct cpu_device *d, struct state_memory *out)
{
    const struct kv_pool *p = &d->pool_kv;

    *out = (struct state_memory){.at = p->apart ? NULL : p->memory,
                                 .bytes = (size_t)p->n_segments * d->segment_bytes,
                                 .tokens = (int)d->page_tokens};
}

void kv_state_rings(const struct cpu_device *d, int session, struct state_memory *out)
{
    const struct kv_state *s = &d->pool_kv.states[session];

    *out = (struct state_memory){
        .at = s->rings, .bytes = s->rings ? d->ring_bytes : 0, .tokens = NUM_CHUNK};
}

int kv_state_share(struct cpu_device *d, int from, int to, int n)
{
    struct kv_state *a = open_state(d, from), *b = open_state(d, to);
    int pages = 0;

    if (!a || !b || a == b)
        return 0;
    for (; pages < n / NUM_CHUNK && a->pages[pages]; pages++) {
        page_of(d, a->pages[pages])->users++;
        give_page(d, b->pages[pages]);
        b->pages[pages] = a->pages[pages];
    }
    if (pages && d->ring_bytes)
        kv_rings_copy(d, b, a);
    return pages * NUM_CHUNK;
}

void kv_state_cut(struct cpu_device *d, int session, int pos)
{
    struct kv_state *s = open_state(d, session);

    for (int i = (pos + NUM_CHUNK - 1) / NUM_CHUNK; s && i < d->chunks_max && s->pages[i]; i++) {
        give_page(d, s->pages[i]);
        s->pages[i] = NULL;
    }
    if (s)
        s->reach = min_int(s->reach, pos);
}

uint64_t kv_state_trim(struct cpu_device *d)
{
    struct kv_pool *p = &d->pool_kv;
    uint64_t bytes = 0;

    for (size_t i = 0; i < p->n_free; i++) {
        struct kv_page *page = page_of(d, p->free[i]);

        if (!page->written)
            continue;
        page->written = false;
        mem_pages_forget(p->free[i], d->page_bytes);
        bytes += d->page_bytes;
    }
    return bytes;
}
