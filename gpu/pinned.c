/* Rows of jobs in flight between host and device, in pinned memory: drivers pin the pages of other
 * memory before they copy from or to it. What that saves was not measured. Opened and closed by
 * memory.c; nothing fails here: without room, rows are copied from where they are. Engine thread.
 * Not on devices that share the host's memory. */
#include "gpu/internal.h"

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
