/* How the rows of jobs come to the device and back. Engine thread. Offering memory, closing and
 * rows_sees wait for the device; nothing that a job calls does. What fails is copied instead.
 *
 * In place, where the device shares the host's memory, coherently, and its driver works on it
 * (cl_target.coherent, rows_sees): the host offers the memory that its rows are in
 * (device_ops.host_rows), a buffer is made of each piece, and a job's kernels get that buffer
 * instead of the device's own.
 * While a job runs the piece is the device's (unmapped), from its end on the host's again; what a
 * job of another device does with other rows of it meanwhile is what
 * CL_DEVICE_SVM_FINE_GRAIN_BUFFER allows.
 *
 * So are the CPU's keys and values (state_rows): all its pages are one piece, and a table says
 * which of them a session has.
 *
 * Else through pinned memory: drivers pin the pages of other memory before they copy from or to it.
 * What that saves was not measured. Opened and closed by memory.c; without room, rows are copied
 * from where they are. */
#include "gpu/internal.h"
#include "engine/base/mem.h"

#include <stdint.h>
#include <string.h>

#define LEAST ((size_t)1 << 10) /* bytes for which it is worth a copy by the host */
#define ALIGN ((size_t)256)

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void *take(struct pinned *p, size_t bytes)
{
    char *at;

    if (!p->map || bytes < LEAST || rounded(bytes) > p->size - p->used)
        return NULL;
    at = p->map + p->used;
    p->used += rounded(bytes);
    return at;
}

const void *pinned_write(struct device *d, const void *data, size_t bytes)
{
    void *at = take(&d->pinned, bytes);

    return at ? memcpy(at, data, bytes) : data;
}

void *pinned_read(struct device *d, void *data, size_t bytes)
{
    struct pinned *p = &d->pinned;
    void *at = p->n_reads < PINNED_READS ? take(p, bytes) : NULL;

    if (!at)
        return data;
    p->read[p->n_reads++] = (struct pinned_read){data, at, bytes};
    return at;
}

void pinned_done(struct device *d, bool right)
{
    struct pinned *p = &d->pinned;

    for (int i = 0; i < p->n_reads && right; i++)
        memcpy(p->read[i].to, p->read[i].from, p->read[i].bytes);
    p->n_reads = 0;
    p->used = 0;
}

/* A CPU's OpenCL computes with the host's caches: whose memory it is says the end of a job alone.
 */
static bool maps(const struct device *d)
{
    return !d->target.info.is_cpu_type || opencl_tuning()->map_rows;
}

/* A piece becomes the host's, all of it: a driver that works on a copy of its own writes that back,
 * and reads it anew when the piece becomes the device's. */
static cl_int take_back(struct device *d, struct host_piece *p, cl_bool wait)
{
    cl_int rc = CL_SUCCESS;

    if (maps(d) && !p->map && !cl_injected(&rc))
        p->map = cl.EnqueueMapBuffer(d->queue, p->mem, wait, CL_MAP_READ | CL_MAP_WRITE, 0,
                                     p->bytes, 0, NULL, NULL, &rc);
    return rc;
}

static cl_int give(struct device *d, struct host_piece *p)
{
    cl_int rc = CL_SUCCESS;

    if (p->map && !cl_injected(&rc))
        rc = cl.EnqueueUnmapMemObject(d->queue, p->mem, p->map, 0, NULL, NULL);
    p->map = NULL;
    return rc;
}

static void piece_release(struct device *d, struct host_piece *p)
{
    if (p->map && !d->lost && give(d, p) == CL_SUCCESS)
        cl.Finish(d->queue);
    opencl_release(&p->mem);
}

static void forget(struct device *d, const void *at)
{
    struct host_rows *r = &d->host_rows;

    for (int i = 0; i < r->n; i++)
        if (r->piece[i].at == at) {
            piece_release(d, &r->piece[i]);
            r->piece[i] = r->piece[--r->n];
            return;
        }
}

/* Whether a buffer made of the host's memory is that memory: bytes that the device copies from one
 * half to the other are there for the host without a map, those that the host changed then without
 * an unmap for the device. Drivers may keep a copy of their own instead. */
bool rows_sees(struct device *d)
{
    enum { HALF = PAGE / 2 };
    unsigned char *at = mem_pages(PAGE);
    cl_int rc = CL_SUCCESS;
    cl_mem mem = NULL;
    bool sees = at != NULL && d->share && d->target.coherent;

    if (sees && !cl_injected(&rc))
        mem = cl.CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, PAGE, at, &rc);
    for (int round = 1; round <= 3 && sees; round++) {
        memset(at, round, HALF);
        if (rc == CL_SUCCESS && !cl_injected(&rc))
            rc = cl.EnqueueCopyBuffer(d->queue, mem, mem, 0, HALF, HALF, 0, NULL, NULL);
        if (rc == CL_SUCCESS)
            rc = cl.Finish(d->queue);
        sees = rc == CL_SUCCESS && memcmp(at, at + HALF, HALF) == 0;
    }
    opencl_release(&mem);
    mem_pages_free(at, PAGE);
    return sees;
}

/* What fails here is copied: the buffer is no driver's duty. */
void rows_offer(struct device *d, void *at, size_t bytes)
{
    struct host_rows *r = &d->host_rows;
    struct host_piece p = {.at = at, .bytes = bytes};
    cl_int rc = CL_SUCCESS;

    forget(d, at);
    if (!d->share || !d->target.coherent || d->lost || !bytes || (uintptr_t)at % PAGE ||
        bytes > d->target.info.max_alloc || !MEM_ROOM(r->piece, r->n, r->room, 16))
        return;
    if (!cl_injected(&rc)) /* whole cache lines: the rest of the page is nobody's */
        p.mem = cl.CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                (bytes + 63) / 64 * 64, at, &rc);
    if (rc == CL_SUCCESS && p.mem && take_back(d, &p, CL_TRUE) == CL_SUCCESS)
        r->piece[r->n++] = p;
    else
        opencl_release(&p.mem);
}

/* A table of pages for `rooms` of kv_chunks: the first one counts. Its rows change, which the
 * device sees. */
static int pages_make(struct device *d, int rooms, struct error *e)
{
    size_t row = (size_t)d->kv_chunks * sizeof(cl_uint), bytes = (size_t)rooms * row;
    cl_uint *table = mem_pages(bytes);
    cl_mem pages = NULL;
    cl_int rc = CL_SUCCESS;

    if (!table)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the table of pages");
    for (int i = 0; i < d->kv_chunks; i++)
        table[i] = (cl_uint)i;
    if (d->page_table)
        memcpy(table, d->page_table, (size_t)d->kv_rooms * row);
    if (!cl_injected(&rc))
        pages = cl.CreateBuffer(d->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR,
                                (bytes + 63) / 64 * 64, table, &rc);
    if (cl_check(d, rc, "the table of pages", e) < 0) {
        mem_pages_free(table, bytes);
        return ERR_DEVICE;
    }
    opencl_release(&d->pages);
    mem_pages_free(d->page_table, (size_t)d->kv_rooms * row);
    d->pages = pages;
    d->page_table = table;
    d->kv_rooms = rooms;
    return 0;
}

/* Of the CPU's memory, which the host has. */
static int state_piece(struct device *d, const struct state_memory *m, struct host_piece *out,
                       struct error *e)
{
    struct host_piece p = {.at = m->at, .bytes = m->bytes};
    cl_int rc = CL_SUCCESS;

    if (!m->at || m->bytes > d->target.info.max_alloc || m->bytes / 16 > CL_UINT_MAX)
        return error_set(e, ERR_DEVICE,
                         "OpenCL %s: the keys and values of all sessions are more than the device "
                         "allows in one piece",
                         d->target.info.name);
    if (!cl_injected(&rc)) /* whole cache lines: the rest of the page is nobody's */
        p.mem = cl.CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                (m->bytes + 63) / 64 * 64, m->at, &rc);
    if (rc == CL_SUCCESS)
        rc = take_back(d, &p, CL_TRUE);
    if (rc != CL_SUCCESS) {
        opencl_release(&p.mem);
        return cl_check(d, rc, "the rows of the CPU", e);
    }
    *out = p;
    return 0;
}

int rows_ring_open(struct device *d, int session, struct error *e)
{
    struct state_rows *s = &d->state;
    struct ring_rows *more;
    struct state_memory m;

    if (!s->cpu)
        return 0;
    ((struct device_base *)(void *)s->cpu)->ops->state_rings(s->cpu, session, &m);
    if (!m.bytes)
        return 0;
    if (session >= s->n_rings) {
        if (!(more = mem_resize(s->ring, (size_t)session + 1, sizeof *more)))
            return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the table of sessions");
        memset(more + s->n_rings, 0, (size_t)(session + 1 - s->n_rings) * sizeof *more);
        s->ring = more;
        s->n_rings = session + 1;
    }
    return state_piece(d, &m, &s->ring[session].piece, e);
}

void rows_ring_close(struct device *d, int session)
{
    if (session >= d->state.n_rings)
        return;
    piece_release(d, &d->state.ring[session].piece);
    d->state.ring[session] = (struct ring_rows){0};
}

int rows_state_grown(struct device *d, int n, struct error *e)
{
    struct state_rows *s = &d->state;
    struct host_piece p;
    struct state_memory m;

    if (!s->cpu)
        return 0;
    ((struct device_base *)(void *)s->cpu)->ops->state_memory(s->cpu, &m);
    if (n >= d->kv_rooms && pages_make(d, n + 1, e) < 0)
        return ERR_DEVICE;
    if (m.at == s->piece.at && m.bytes == s->piece.bytes)
        return 0;
    if (state_piece(d, &m, &p, e) < 0)
        return ERR_DEVICE;
    recordings_forget(d);
    piece_release(d, &s->piece);
    s->piece = p;
    s->tokens = m.tokens;
    return 0;
}

static void rings_release(struct device *d)
{
    for (int i = 0; i < d->state.n_rings; i++)
        rows_ring_close(d, i);
    mem_free(d->state.ring);
    d->state.ring = NULL;
    d->state.n_rings = 0;
}

bool rows_state_in_place(struct device *d, struct device *cpu)
{
    const struct device_base *b = (const struct device_base *)(void *)cpu;
    struct error ignored;
    int rc;

    if (!d->share || !d->target.coherent || !b->ops->state_memory ||
        b->config.max_rows != d->base.config.max_rows ||
        b->config.context != d->base.config.context)
        return false;
    d->state.cpu = cpu;
    rc = rows_state_grown(d, d->kv_room, &ignored);
    for (int i = 0; i < d->kv_room && rc == 0; i++)
        rc = d->kv_open[i] ? rows_ring_open(d, i, &ignored) : 0;
    if (rc == 0)
        return true;
    rings_release(d);
    d->state.cpu = NULL;
    return false;
}

int rows_ring_place(struct device *d, int layer, int session, int pos, int end,
                    struct kv_place *out, struct error *e)
{
    struct state_rows *s = &d->state;
    const struct device_ops *ops = ((const struct device_base *)(void *)s->cpu)->ops;
    struct ring_rows *r = session < s->n_rings ? &s->ring[session] : NULL;

    if (!ops->state_pages(s->cpu, session, pos, end, e))
        return ERR_DEVICE;
    if (!r || !r->piece.mem)
        return error_set(e, ERR_DEVICE, "OpenCL %s: session %d has no ring here",
                         d->target.info.name, session);
    out->rows = r->piece.mem;
    out->layer_at = (int)(ops->state_at(s->cpu, layer) / 16);
    r->bound = true;
    return cl_check(d, give(d, &r->piece), "the rows of the CPU", e);
}

int rows_state_place(struct device *d, int layer, int session, int pos, int end,
                     struct kv_place *out, struct error *e)
{
    struct state_rows *s = &d->state;
    const struct device_ops *ops = ((const struct device_base *)(void *)s->cpu)->ops;
    cl_uint *table = d->page_table + (size_t)(1 + session) * (size_t)d->kv_chunks;
    uint8_t *const *pages = ops->state_pages(s->cpu, session, pos, end, e);

    if (!pages)
        return ERR_DEVICE;
    /* What a job in flight reads of it does not change. */
    for (int i = 0; i < d->kv_chunks && pages[i]; i++)
        table[i] = (cl_uint)((size_t)((const char *)pages[i] - s->piece.at) / 16);
    out->rows = s->piece.mem;
    out->pages = d->pages;
    out->first_page = (1 + session) * d->kv_chunks;
    out->page_step = 1;
    out->layer_at = (int)(ops->state_at(s->cpu, layer) / 16);
    out->tokens = s->tokens;
    s->bound = true;
    return cl_check(d, give(d, &s->piece), "the rows of the CPU", e);
}

void rows_close(struct device *d)
{
    struct host_rows *r = &d->host_rows;

    rings_release(d);
    piece_release(d, &d->state.piece);
    opencl_release(&d->pages);
    mem_pages_free(d->page_table, (size_t)d->kv_rooms * (size_t)d->kv_chunks * sizeof(cl_uint));
    for (int i = 0; i < r->n; i++)
        piece_release(d, &r->piece[i]);
    mem_free(r->piece);
    memset(r, 0, sizeof *r);
}

static struct host_piece *piece_of(struct device *d, const void *data, size_t bytes)
{
    struct host_rows *r = &d->host_rows;

    for (int i = 0; i < r->n; i++) {
        struct host_piece *p = &r->piece[i];

        if ((const char *)data >= p->at && (const char *)data + bytes <= p->at + p->bytes)
            return p;
    }
    return NULL;
}

/* Binds bytes of a piece: whole, or from an offset on that the device can start at. */
static int bind(struct device *d, cl_mem *slot, struct host_piece *p, const void *data,
                size_t bytes, bool whole)
{
    struct host_rows *r = &d->host_rows;
    struct bound_rows *b = &r->bound[r->n_bound];
    const cl_buffer_region region = {(size_t)((const char *)data - p->at), bytes};
    cl_int rc = CL_SUCCESS;
    cl_mem part = NULL;

    if (r->n_bound == BOUND_ROWS)
        return 0;
    if (!whole && region.origin) {
        if (region.origin % (d->target.align ? d->target.align : PAGE))
            return 0;
        if (!cl_injected(&rc))
            part = cl.CreateSubBuffer(p->mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                      &region, &rc);
        if (rc != CL_SUCCESS || !part)
            return 0;
    }
    if (give(d, p) != CL_SUCCESS) {
        opencl_release(&part);
        return 0;
    }
    *b = (struct bound_rows){slot, *slot, part, p};
    *slot = part ? part : p->mem;
    r->n_bound++;
    return 1;
}

int rows_bind(struct device *d, cl_mem *slot, const void *data, size_t bytes)
{
    struct host_piece *p = piece_of(d, data, bytes);

    return p ? bind(d, slot, p, data, bytes, false) : 0;
}

int rows_bind_at(struct device *d, cl_mem *slot, const void *data, size_t bytes, size_t *offset)
{
    struct host_piece *p = piece_of(d, data, bytes);

    *offset = p ? (size_t)((const char *)data - p->at) : 0;
    return p ? bind(d, slot, p, data, bytes, true) : 0;
}

void rows_unbind(struct device *d, int n)
{
    struct host_rows *r = &d->host_rows;

    while (r->n_bound > n) {
        struct bound_rows *b = &r->bound[--r->n_bound];

        *b->slot = b->own;
        opencl_release_part(&b->part);
    }
}

bool rows_parts(const struct device *d)
{
    for (int i = 0; i < d->host_rows.n_bound; i++)
        if (d->host_rows.bound[i].part)
            return true;
    return false;
}

/* What the job's kernels were given is the host's again when they are done. */
cl_int rows_end(struct device *d)
{
    struct host_rows *r = &d->host_rows;
    cl_int rc = CL_SUCCESS;

    for (int i = 0; i < r->n_bound && rc == CL_SUCCESS; i++)
        rc = take_back(d, r->bound[i].piece, CL_FALSE);
    if (d->state.bound && rc == CL_SUCCESS)
        rc = take_back(d, &d->state.piece, CL_FALSE);
    d->state.bound = false;
    for (int i = 0; i < d->state.n_rings; i++) {
        if (d->state.ring[i].bound && rc == CL_SUCCESS)
            rc = take_back(d, &d->state.ring[i].piece, CL_FALSE);
        d->state.ring[i].bound = false;
    }
    rows_unbind(d, 0);
    return rc;
}

const void *rows_bound(const struct device *d, const cl_mem *slot)
{
    const struct host_rows *r = &d->host_rows;

    for (int i = 0; i < r->n_bound; i++)
        if (r->bound[i].slot == slot)
            return r->bound[i].piece->at;
    return NULL;
}
