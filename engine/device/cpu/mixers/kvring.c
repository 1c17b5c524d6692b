/* Rows of layers with a window, of which only the newest are visible: a ring of whole chunks per
 * layer and session, each with the layout of a chunk in a page; a new chunk overwrites the oldest
 * (state_room). One mapping per session, allocated when its state is opened; the system provides
 * memory when it is written. The engine tracks which rows are still there (engine/run/state/kv.h).
 * Engine thread; rows are read and written on compute threads. */
#include "engine/base/mem.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/cpu.h"

#include <string.h>

int kv_rings_open(struct cpu_device *d, struct kv_state *s, struct error *e)
{
    if (!d->ring_bytes)
        return 0;
    if (!(s->rings = mem_pages(d->ring_bytes)))
        return error_set(e, ERR_MEMORY,
                         "no memory for the keys and values of layers with a window (%.1f MiB)",
                         (double)d->ring_bytes / 1048576.0);
    topology_interleave(s->rings, d->ring_bytes);
    d->stats.kv_bytes += d->ring_bytes;
    s->reach = 0;
    return 0;
}

void kv_rings_close(struct cpu_device *d, struct kv_state *s)
{
    if (s->rings)
        d->stats.kv_bytes -= d->ring_bytes;
    mem_pages_free(s->rings, d->ring_bytes);
    s->rings = NULL;
}

/* Of a layer: bytes per chunk, and number of chunks with rows. */
static size_t chunk_bytes(const struct layer_layout *l)
{
    return l->head_bytes * (size_t)l->keeps.heads;
}

static size_t chunks_used(const struct layer_layout *l, const struct kv_state *s)
{
    return (size_t)min_int((s->reach + NUM_CHUNK - 1) / NUM_CHUNK, l->ring_chunks);
}

void kv_rings_copy(const struct cpu_device *d, struct kv_state *to, const struct kv_state *from)
{
    for (int i = 0; i < d->model->hp.n_layers; i++) {
        const struct layer_layout *l = layout_of(d, i);

        if (l->ring_chunks)
            memcpy(to->rings + l->at, from->rings + l->at, chunks_used(l, from) * chunk_bytes(l));
    }
    to->reach = from->reach;
}

size_t kv_rings_used(const struct cpu_device *d, const struct kv_state *s)
{
    size_t sum = 0;

    for (int i = 0; i < d->model->hp.n_layers; i++)
        sum += chunks_used(layout_of(d, i), s) * chunk_bytes(layout_of(d, i));
    return sum;
}
