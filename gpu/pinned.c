/* Rows of jobs in flight between host and device, in pinned memory: a driver copies large pieces of
 * other memory by pinning its pages first, which took an H200's host far longer than the copy.
 * Engine thread. Not on devices that share the host's memory. */
#include "gpu/internal.h"

#include <string.h>

#define LEAST ((size_t)1 << 10) /* bytes for which it is worth a copy by the host */
#define MOST ((size_t)32 << 20)
#define ALIGN ((size_t)256)

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* What one job of max_rows moves: rows there and back, the outputs of their experts, choices. */
size_t pinned_size(const struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;
    size_t rows = (size_t)d->base.config.max_rows, used = (size_t)hp->n_experts_used,
           size = rows * (size_t)hp->hidden * 4 * (2 + used) +
                  rows * used * (size_t)hp->n_layers * 8 + 8 * ALIGN;

    return d->share ? 0 : size < MOST ? rounded(size) : MOST;
}

int pinned_open(struct device *d, struct error *e)
{
    struct pinned *p = &d->pinned;
    cl_int rc = CL_SUCCESS;

    p->size = pinned_size(d);
    if (!p->size)
        return 0;
    if (!cl_injected(&rc))
        p->mem = cl.CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, p->size,
                                 NULL, &rc);
    if (cl_check(d, rc, "pinned memory for rows", e) < 0)
        return ERR_DEVICE;
    if (!cl_injected(&rc))
        p->map = cl.EnqueueMapBuffer(d->queue, p->mem, CL_TRUE, CL_MAP_WRITE | CL_MAP_READ, 0,
                                     p->size, 0, NULL, NULL, &rc);
    return cl_check(d, rc, "mapping the pinned memory for rows", e);
}

void pinned_close(struct device *d)
{
    if (d->pinned.map) {
        cl.EnqueueUnmapMemObject(d->queue, d->pinned.mem, d->pinned.map, 0, NULL, NULL);
        cl.Finish(d->queue);
    }
    memory_release(&d->pinned.mem);
}

static void *take(struct pinned *p, size_t bytes)
{
    char *at = p->map + p->used;

    if (!p->map || bytes < LEAST || rounded(bytes) > p->size - p->used)
        return NULL;
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
