/* Streams experts to the device: two buffers, each as large as the model's largest expert and its
 * biases. Engine thread; nothing here waits for the device (unless noted), all order between the
 * queues is by events: a copy waits for the last kernel that used its buffer, a kernel for its
 * copy. So copying one expert overlaps computing another, and prefetching the next layer's overlaps
 * this one. */
#include "gpu/internal.h"
#include "engine/base/mem.h"

#include <string.h>

static void event_drop(cl_event *ev)
{
    if (*ev)
        cl.ReleaseEvent(*ev);
    *ev = NULL;
}

/* Adds up the time of the finished copies into a slot. */
static void count_time(struct device *d, struct swap_slot *s)
{
    cl_ulong a = 0, b = 0;

    if (s->begun && s->ready &&
        cl.GetEventProfilingInfo(s->begun, CL_PROFILING_COMMAND_START, sizeof a, &a, NULL) ==
            CL_SUCCESS &&
        cl.GetEventProfilingInfo(s->ready, CL_PROFILING_COMMAND_END, sizeof b, &b, NULL) ==
            CL_SUCCESS &&
        b > a)
        d->stats.transfer_ns += b - a;
    event_drop(&s->begun);
    event_drop(&s->ready);
}

static void slot_forget(struct device *d, struct swap_slot *s)
{
    count_time(d, s);
    event_drop(&s->used);
    s->layer = s->expert = -1;
    s->guessed = false;
}

void expert_swap_forget(struct device *d)
{
    if (!d->swap.items)
        return;
    if (!d->lost)
        cl.Finish(d->upload);
    for (int i = 0; i < DEVICE_STREAM; i++)
        slot_forget(d, &d->swap.slot[i]);
    d->swap.n = d->swap.next = 0;
}

static void close_slots(struct device *d)
{
    expert_swap_forget(d);
    for (int i = 0; i < DEVICE_STREAM; i++)
        for (int k = 0; k < 3; k++) {
            memory_release(&d->swap.slot[i].block.part[k].mem);
            memory_release(&d->swap.slot[i].block.part[k].bias);
        }
    d->stats.stream_bytes = 0;
    mem_free(d->swap.items);
    memset(&d->swap, 0, sizeof d->swap);
}

int expert_swap_set(struct device *d, bool on, struct error *e)
{
    const struct model *m = d->base.config.model;
    uint64_t matrix[3], bias[3];

    if (!on) {
        if (!d->lost && d->queue)
            cl.Finish(d->queue);
        close_slots(d);
        return 0;
    }
    if (d->swap.items)
        return 0;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        if (id.kind == BLOCK_EXPERT &&
            memory_expert_check(d, &m->layers[id.layer].experts[id.expert], e) < 0)
            return ERR_DEVICE;
    memory_swap_bytes(d, matrix, bias);
    d->swap.items = mem_alloc((size_t)m->hp.n_experts, sizeof *d->swap.items);
    if (!d->swap.items)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for streaming experts");
    for (int i = 0; i < DEVICE_STREAM; i++) {
        struct swap_slot *s = &d->swap.slot[i];

        s->layer = s->expert = -1;
        s->block.state = BLOCK_RESIDENT;
        s->block.n_parts = 3;
        for (int k = 0; k < 3; k++) {
            struct part *p = &s->block.part[k];

            if ((matrix[k] && memory_buffer(d, matrix[k], &p->mem, "streaming experts", e) < 0) ||
                (bias[k] && memory_buffer(d, bias[k], &p->bias, "streaming experts", e) < 0)) {
                close_slots(d);
                return ERR_DEVICE;
            }
            d->stats.stream_bytes += matrix[k] + bias[k];
        }
    }
    return 0;
}

/* Enqueues one copy into a slot: the first one waits for the slot's last reader, the last one
 * signals completion. */
static cl_int copy_in(struct device *d, struct swap_slot *s, cl_mem to, const void *data,
                      size_t bytes)
{
    bool first = !s->begun;
    cl_int rc = CL_SUCCESS;

    if (!first)
        event_drop(&s->ready);
    if (!cl_injected(&rc))
        rc = cl.EnqueueWriteBuffer(d->upload, to, CL_FALSE, 0, bytes, data, first && s->used,
                                   first && s->used ? &s->used : NULL,
                                   first ? &s->begun : &s->ready);
    d->stats.uploaded_bytes += bytes;
    d->stats.streamed_bytes += bytes;
    return rc;
}

/* Starts copying an expert into a slot, after the kernels that still read its contents. */
static int fill(struct device *d, struct swap_slot *s, int layer, int expert, struct error *e)
{
    struct block_matrix w[BLOCK_MATRICES];
    int n = model_block_matrices(d->base.config.model,
                                 (struct block_id){BLOCK_EXPERT, layer, expert}, w);
    cl_int rc = CL_SUCCESS;

    count_time(d, s);
    s->layer = s->expert = -1;
    s->guessed = false;
    s->block.part[0].m = NULL; /* there may be no gate */
    for (int k = 0; k < n && rc == CL_SUCCESS; k++) {
        const struct matrix *m = w[k].w;
        struct part *p = &s->block.part[w[k].part - MATRIX_GATE];

        p->m = m;
        rc = copy_in(d, s, p->mem, m->data, m->bytes);
        if (m->bias && rc == CL_SUCCESS)
            rc = copy_in(d, s, p->bias, m->bias, (size_t)m->rows * sizeof *m->bias);
    }
    if (rc == CL_SUCCESS)
        rc = cl.Flush(d->upload);
    event_drop(&s->used);
    if (cl_check(d, rc, "streaming an expert", e) < 0)
        return ERR_DEVICE;
    s->layer = layer;
    s->expert = expert;
    s->stamp = ++d->swap.clock;
    d->stats.streamed++;
    return 0;
}

static struct swap_slot *slot_of(struct device *d, int layer, int expert)
{
    for (int i = 0; i < DEVICE_STREAM; i++)
        if (d->swap.slot[i].layer == layer && d->swap.slot[i].expert == expert)
            return &d->swap.slot[i];
    return NULL;
}

/* The slot that was filled longest ago among those not needed by the job. */
static struct swap_slot *slot_free(struct device *d)
{
    struct swap_slot *best = NULL;

    for (int i = 0; i < DEVICE_STREAM; i++)
        if (!d->swap.slot[i].wanted && (!best || d->swap.slot[i].stamp < best->stamp))
            best = &d->swap.slot[i];
    return best;
}

/* Starts copies as long as there are slots. */
static int fill_ahead(struct device *d, int layer, struct error *e)
{
    struct expert_swap *t = &d->swap;
    struct swap_slot *s;

    while (t->next < t->n && (s = slot_free(d))) {
        if (fill(d, s, layer, t->items[t->next].expert, e) < 0)
            return ERR_DEVICE;
        s->wanted = true;
        t->next++;
    }
    return 0;
}

int expert_swap_begin(struct device *d, int layer, struct error *e)
{
    struct expert_swap *t = &d->swap;
    int hits = 0;

    for (int i = 0; i < DEVICE_STREAM; i++)
        t->slot[i].wanted = false;
    for (int i = 0; i < t->n; i++) { /* experts already in a slot come first */
        struct swap_slot *s = slot_of(d, layer, t->items[i].expert);
        struct swap_item item = t->items[i];

        if (!s)
            continue;
        s->wanted = true;
        d->stats.prefetch_hits += s->guessed;
        s->guessed = false;
        t->items[i] = t->items[hits];
        t->items[hits++] = item;
    }
    t->next = hits;
    return fill_ahead(d, layer, e);
}

struct block *expert_swap_take(struct device *d, int layer, int expert, struct error *e)
{
    struct swap_slot *s = slot_of(d, layer, expert);
    cl_int rc = CL_SUCCESS;

    if (!s) {
        error_set(e, ERR_DEVICE, "OpenCL %s: an expert of layer %d did not come through",
                  d->target.info.name, layer);
        return NULL;
    }
    if (s->ready && !cl_injected(&rc))
        rc = cl.EnqueueBarrierWithWaitList(d->queue, 1, &s->ready, NULL);
    return cl_check(d, rc, "waiting for an expert", e) < 0 ? NULL : &s->block;
}

int expert_swap_done(struct device *d, int layer, int expert, struct error *e)
{
    struct swap_slot *s = slot_of(d, layer, expert);
    cl_int rc = CL_SUCCESS;

    event_drop(&s->used);
    if (!cl_injected(&rc))
        rc = cl.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &s->used);
    if (rc == CL_SUCCESS)
        rc = cl.Flush(d->queue); /* the other queue will wait for it */
    if (cl_check(d, rc, "marking an expert", e) < 0)
        return ERR_DEVICE;
    s->wanted = false;
    return fill_ahead(d, layer, e);
}

void expert_swap_prefetch(struct device *d, int layer, const int *experts, int n)
{
    struct error ignored;

    if (!d->swap.items || d->lost)
        return;
    for (int i = 0; i < DEVICE_STREAM; i++)
        d->swap.slot[i].wanted = false;
    for (int i = 0; i < n; i++) {
        struct swap_slot *s = slot_of(d, layer, experts[i]);

        if (s)
            s->wanted = true;
    }
    for (int i = 0; i < n; i++) {
        struct swap_slot *s;

        if (memory_block(d, (struct block_id){BLOCK_EXPERT, layer, experts[i]})->state ==
                BLOCK_RESIDENT ||
            slot_of(d, layer, experts[i]) || !(s = slot_free(d)) ||
            fill(d, s, layer, experts[i], &ignored) < 0)
            continue;
        s->wanted = s->guessed = true;
        d->stats.prefetched++;
    }
}
