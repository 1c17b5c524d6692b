/* All experts of a layer in one buffer for each of their matrices, so that kernels find an expert
 * by its number: the host need not know which ones the router chose, however many there are.
 * Engine thread, between jobs.
 *
 * Blocks arrive one by one, each in buffers of its own, which a layer's first job joins by copies
 * on the device; each block's buffer is a part of the joint one then. Before one of them leaves,
 * the others get buffers of their own again, or its memory would not be free. Both take memory for
 * one matrix of all experts for a moment; where that is not to be had everything stays as it is,
 * and the host is asked for the choices.
 *
 * Matrices that are used in host memory in place lie one behind the other there (binding/ffn.c
 * takes a layer's gates, then its ups, then its downs): the joint buffer is that memory, and
 * nothing is copied. */
#include "gpu/internal.h"

static struct block *expert(struct device *d, int layer, int i)
{
    return memory_block(d, (struct block_id){BLOCK_EXPERT, layer, i});
}

bool joined_shared(const struct device *d, int layer)
{
    const struct ffn_shape *s = &hparams_layer(&d->base.config.model->hp, layer)->ffn;
    const struct expert_weights *a = d->base.config.model->layers[layer].experts,
                                *b = a + s->experts;

    if (d->share || s->kind != FFN_ROUTED) /* its matrices lie elsewhere; it has its own rows */
        return false;
    return s->shared && a->gate.type == b->gate.type && a->gate.bytes == b->gate.bytes &&
           a->up.type == b->up.type && a->up.bytes == b->up.bytes && a->up.rows == b->up.rows &&
           a->down.type == b->down.type && a->down.bytes == b->down.bytes &&
           !a->up.bias == !b->up.bias && !a->down.bias == !b->down.bias;
}

static int experts_of(const struct device *d, int layer)
{
    return hparams_layer(&d->base.config.model->hp, layer)->ffn.experts + joined_shared(d, layer);
}

/* Bytes of the host's memory from the first expert's matrix to the last one's, in whole cache
 * lines as drivers want it. */
static size_t host_bytes(struct device *d, int layer, int k, size_t step)
{
    return (size_t)(experts_of(d, layer) - 1) * step +
           (expert(d, layer, 0)->part[k].m->bytes + 63) / 64 * 64;
}

/* Bytes from matrix k of an expert in host memory to the next one's, the same between all of them;
 * 0: they do not lie so that one buffer can have them. */
static size_t host_step(struct device *d, int layer, int k, size_t align)
{
    uintptr_t first = (uintptr_t)expert(d, layer, 0)->part[k].m->data, step = 0;

    for (int i = 1; i < experts_of(d, layer); i++) {
        uintptr_t at = (uintptr_t)expert(d, layer, i)->part[k].m->data;

        if (i == 1)
            step = at > first ? at - first : 0;
        if (at != first + (uintptr_t)i * step)
            return 0;
    }
    return step % align || host_bytes(d, layer, k, step) > d->target.info.max_alloc ? 0 : step;
}

/* One kernel and one step can serve them all. */
static bool alike(struct device *d, int layer)
{
    const struct block *first = expert(d, layer, 0);

    for (int i = 0; i < experts_of(d, layer); i++) {
        const struct block *b = expert(d, layer, i);

        if (b->state != BLOCK_RESIDENT)
            return false;
        for (int k = 0; k < JOINED_PARTS; k++) {
            const struct part *p = &b->part[k], *q = &first->part[k];

            if (!p->m != !q->m || p->shared != q->shared || p->shared != first->part[1].shared)
                return false;
            if (k == 0 && p->m && p->m->bytes != b->part[1].m->bytes)
                return false; /* gate_up has one step */
            if (p->m && (p->m->type != q->m->type || p->m->bytes != q->m->bytes ||
                         p->m->rows != q->m->rows || !p->bias != !q->bias))
                return false;
        }
    }
    return true;
}

static int copy(struct device *d, cl_mem from, cl_mem to, size_t at, size_t bytes, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        rc = cl.EnqueueCopyBuffer(d->queue, from, to, 0, at, bytes, 0, NULL, NULL);
    return cl_check(d, rc, "clEnqueueCopyBuffer", e);
}

static int finish(struct device *d, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        rc = cl.Finish(d->queue);
    return cl_check(d, rc, "clFinish", e);
}

static cl_mem *place(struct part *p, bool bias)
{
    return bias ? &p->bias : &p->mem;
}

static size_t bytes_of(const struct part *p, bool bias)
{
    return bias ? (size_t)p->m->rows * 4 : p->m->bytes;
}

/* Copies every expert's part into *whole, `step` bytes after the one before. */
static int gather(struct device *d, int layer, int k, bool bias, size_t step, cl_mem *whole,
                  struct error *e)
{
    int n = experts_of(d, layer);
    struct part *first = &expert(d, layer, 0)->part[k];

    if (memory_buffer(d, (size_t)n * step, whole, "the experts of a layer", e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < n; i++)
        if (copy(d, *place(&expert(d, layer, i)->part[k], bias), *whole, (size_t)i * step,
                 bytes_of(first, bias), e) < 0)
            return ERR_DEVICE;
    return finish(d, e);
}

/* One buffer over the matrices of all experts, where they are. */
static int wrap(struct device *d, int layer, int k, size_t step, cl_mem *whole, struct error *e)
{
    void *first = (void *)(uintptr_t)expert(d, layer, 0)->part[k].m->data;
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        *whole = cl.CreateBuffer(d->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR,
                                 host_bytes(d, layer, k, step), first, &rc);
    return cl_check(d, rc, "clCreateBuffer of a layer's experts", e);
}

/* Every expert's part becomes a piece of *whole, `step` bytes after the one before. The parts
 * change only when nothing can fail any more. */
static int join_parts(struct device *d, int layer, int k, bool bias, size_t step, cl_mem *whole,
                      struct error *e)
{
    int n = experts_of(d, layer);
    struct part *first = &expert(d, layer, 0)->part[k];
    bool shared = first->shared && !bias;

    if (shared ? wrap(d, layer, k, step, whole, e) < 0
               : gather(d, layer, k, bias, step, whole, e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < n; i++) {
        cl_mem *at = place(&expert(d, layer, i)->part[k], bias);
        const cl_buffer_region region = {(size_t)i * step, bytes_of(first, bias)};
        cl_int rc = CL_SUCCESS;
        cl_mem part = cl.CreateSubBuffer(*whole, shared ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE,
                                         CL_BUFFER_CREATE_TYPE_REGION, &region, &rc);

        if (cl_check(d, rc, "clCreateSubBuffer", e) < 0)
            return ERR_DEVICE; /* those before are parts of it already: both hold the weights */
        memory_release(at);
        *at = part;
    }
    return 0;
}

/* The other way: each of the experts gets a buffer of its own, but the one that leaves. Pieces of
 * host memory are as good. */
static void part_parts(struct device *d, int layer, int k, bool bias, int leaving)
{
    struct error e;

    for (int i = 0; i < experts_of(d, layer); i++) {
        struct part *p = &expert(d, layer, i)->part[k];
        cl_mem own, *at = place(p, bias);

        if (i == leaving || !*at || (p->shared && !bias))
            continue;
        if (memory_buffer(d, bytes_of(p, bias), &own, "weights", &e) < 0)
            return; /* the rest stays in the joint buffer until its last part is released */
        if (copy(d, *at, own, 0, bytes_of(p, bias), &e) < 0 || finish(d, &e) < 0) {
            memory_release(&own);
            return;
        }
        memory_release(at);
        *at = own;
    }
}

static void release(struct joined_experts *j)
{
    for (int k = 0; k < JOINED_PARTS; k++) {
        memory_release(&j->matrix[k]);
        memory_release(&j->bias[k]);
    }
    j->state = JOINED_NOT;
}

const struct joined_experts *joined_experts(struct device *d, int layer)
{
    struct joined_experts *j = &d->joined[layer];
    size_t align = d->target.align ? d->target.align : 1;
    struct error e;

    if (j->state != JOINED_NOT)
        return j->state == JOINED_YES ? j : NULL;
    j->state = JOINED_FAILED;
    if (!alike(d, layer))
        return NULL;
    for (int k = 0; k < JOINED_PARTS; k++) {
        const struct part *p = &expert(d, layer, 0)->part[k];

        j->step[k] = !p->m       ? 0
                     : p->shared ? host_step(d, layer, k, align)
                                 : (p->m->bytes + align - 1) / align * align;
        if (p->shared && (j->step[k] == 0 || (k == 1 && j->step[0] && j->step[0] != j->step[1])))
            return NULL; /* gate_up has one step */
        j->bias_step[k] = p->bias ? ((size_t)p->m->rows * 4 + align - 1) / align * align : 0;
        if ((p->m && join_parts(d, layer, k, false, j->step[k], &j->matrix[k], &e) < 0) ||
            (p->bias && join_parts(d, layer, k, true, j->bias_step[k], &j->bias[k], &e) < 0)) {
            release(j);
            j->state = JOINED_FAILED;
            log_line(d, e.text);
            return NULL;
        }
    }
    j->state = JOINED_YES;
    return j;
}

void joined_experts_close(struct device *d, int layer)
{
    release(&d->joined[layer]);
}

void joined_experts_leave(struct device *d, int layer, int leaving)
{
    struct joined_experts *j = &d->joined[layer];

    if (j->state == JOINED_YES && !d->lost)
        for (int k = 0; k < JOINED_PARTS; k++) {
            if (j->matrix[k])
                part_parts(d, layer, k, false, leaving);
            if (j->bias[k])
                part_parts(d, layer, k, true, leaving);
        }
    release(j);
}
