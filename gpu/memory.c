/* Memory of the device: buffers, scratch (allocated once at open), the sessions' KV caches, and
 * what all of it takes. Engine thread. Blocks of weights: memory_blocks.c. */
#include "gpu/internal.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"
#include "engine/device/state.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int memory_buffer(struct device *d, size_t bytes, cl_mem *out, const char *what, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    *out = NULL;
    if (bytes == 0)
        bytes = 64;
    if (bytes > d->target.info.max_alloc)
        return error_set(e, ERR_DEVICE,
                         "OpenCL %s: %s needs %zu MiB in one piece, the device allows %llu MiB",
                         d->target.info.name, what, bytes >> 20,
                         (unsigned long long)d->target.info.max_alloc >> 20);
    if (!cl_injected(&rc))
        *out = cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &rc);
    if (rc != CL_SUCCESS) {
        *out = NULL;
        d->stats.failures++;
        return error_set(e, ERR_DEVICE, "OpenCL %s: no memory for %s (%zu KiB): %s",
                         d->target.info.name, what, (bytes + 1023) >> 10, opencl_word(rc));
    }
    return 0;
}

void memory_release(cl_mem *mem)
{
    opencl_release(mem);
}

int memory_upload(struct device *d, cl_mem mem, const void *data, size_t bytes, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        rc = cl.EnqueueWriteBuffer(d->upload, mem, CL_TRUE, 0, bytes, data, 0, NULL, NULL);
    /* A blocking write means that `data` may be changed, not that the buffer has them: Intel's
     * runtime for CPUs returns before. The other queue would not wait for it. */
    if (rc == CL_SUCCESS && !cl_injected(&rc))
        rc = cl.Finish(d->upload);
    d->stats.uploaded_bytes += bytes;
    return cl_check(d, rc, "clEnqueueWriteBuffer", e);
}

/* Every buffer allocated at open, as offsets in struct device. */
struct scratch_item {
    size_t at, bytes;
};

#define SCRATCH_MAX 50

static int scratch_list(struct device *d, struct scratch_item *list)
{
    const struct hparams *hp = &d->base.config.model->hp;
    size_t rows = (size_t)d->base.config.max_rows, hidden = (size_t)hp->hidden,
           heads = (size_t)d->most_heads, kv = (size_t)d->most_kv,
           used = (size_t)hp->n_experts_used, ffn = (size_t)d->most_ffn,
           gated = (size_t)d->most_gated;
    size_t chunks = (size_t)(d->stride + 255) / 256, row_part = chunks * (size_t)d->most_part * 4;
    size_t head_rows = rows < HEAD_ROWS ? rows : HEAD_ROWS, layers = (size_t)hp->n_layers,
           rope = (size_t)d->stride * (size_t)hp->common.mixer.rope_dims / 2 * 4,
           second = (size_t)d->stride * (size_t)hp->second_rope.dims / 2 * 4,
           normed = (size_t)d->normed;
    int ropes = d->base.config.rope_cos[1] ? 2 : d->base.config.ropes;
    size_t act = d->wide ? 4 : 1, mid = rows * used * ffn;

    d->part_bytes = row_part * rows;
    if (d->part_bytes > ATTEND_BYTES)
        d->part_bytes = row_part > ATTEND_BYTES ? row_part : ATTEND_BYTES;
    d->max_tiles = (int)(rows * used) + hp->n_experts;
#define ITEM(member, size)                    \
    {                                         \
        offsetof(struct device, member), size \
    }
    const struct scratch_item all[] = {
        ITEM(none, 64),
        ITEM(replay.position, d->wide ? 0 : 64),
        ITEM(x, rows * hidden * 4),
        ITEM(h, normed * rows * hidden * 4),
        ITEM(raw, rows * gated * 2 * 4),
        ITEM(q, rows * heads * 4),
        ITEM(gates, rows * gated * 4),
        ITEM(k, rows * kv * 4),
        ITEM(v, rows * kv * 4),
        ITEM(qr, rows * heads * 4),
        ITEM(heads_out, rows * heads * 4),
        ITEM(y, rows * hidden * 4),
        ITEM(part, d->part_bytes),
        ITEM(scores, rows * (size_t)d->padded_experts * 4 * 4),
        ITEM(arrivals, rows * 4),
        ITEM(gate_sums, d->wide ? 0 : used * (size_t)d->most_ffn * 32),
        ITEM(gate_arrivals, d->wide ? 0 : used * (size_t)d->most_ffn / 8),
        ITEM(head_arrivals, d->wide ? 0 : (size_t)d->most_arrivals * 4),
        ITEM(chosen, rows * used * 4),
        ITEM(chosen_weights, rows * used * 4),
        ITEM(tiles, (size_t)d->max_tiles * 16),
        ITEM(entries, rows * used * 8),
        ITEM(mid, mid * 4),
        ITEM(out, used * rows * hidden * 4),
        ITEM(logits, head_rows * (size_t)hp->n_vocab * 4),
        ITEM(kv_rows, rows * kv * 2 * 4),
        ITEM(all_chosen, layers * rows * used * 4),
        ITEM(all_weights, layers * rows * used * 4),
        ITEM(rope_cos[0], rope),
        ITEM(rope_sin[0], rope),
        ITEM(rope_cos[1], ropes > 1 ? rope : 0),
        ITEM(rope_sin[1], ropes > 1 ? rope : 0),
        ITEM(second_cos, second),
        ITEM(second_sin, second),
        ITEM(hq.q, normed * rows * hidden * act),
        ITEM(hq.d, normed * rows * hidden / 8),
        ITEM(hq.s, normed * rows * hidden / 8),
        ITEM(oq.q, rows * heads * act),
        ITEM(oq.d, rows * heads / 8),
        ITEM(oq.s, rows * heads / 8),
        ITEM(mq.q, mid * act),
        ITEM(mq.d, mid / 8),
        ITEM(mq.s, mid / 8),
    };
#undef ITEM
    _Static_assert(sizeof all / sizeof all[0] <= SCRATCH_MAX, "SCRATCH_MAX");
    memcpy(list, all, sizeof all);
    return (int)(sizeof all / sizeof all[0]);
}

static cl_mem *scratch_place(struct device *d, const struct scratch_item *item)
{
    return (cl_mem *)(void *)((char *)d + item->at);
}

/* Of the pinned memory for rows (rows.c): what one job of max_rows moves, if that is not too
 * much: rows there and back, the outputs of their experts, choices. */
static size_t pinned_size(const struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;
    size_t rows = (size_t)d->base.config.max_rows, used = (size_t)hp->n_experts_used,
           size = rows * (size_t)hp->hidden * 4 * (2 + used) +
                  rows * used * (size_t)hp->n_layers * 8 + 2048;

    return d->share ? 0 : size < PINNED_MOST ? size : PINNED_MOST;
}

static int pinned_open(struct device *d, struct error *e)
{
    struct pinned *p = &d->pinned;
    cl_int rc = CL_SUCCESS;

    p->size = pinned_size(d);
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

static void pinned_close(struct device *d)
{
    if (d->pinned.map) {
        cl.EnqueueUnmapMemObject(d->queue, d->pinned.mem, d->pinned.map, 0, NULL, NULL);
        cl.Finish(d->queue);
    }
    memory_release(&d->pinned.mem);
}

/* Pinned memory: for weights and, once pinned_open has been, for rows. */
static uint64_t staging_bytes(const struct device *d)
{
    return d->share ? 0 : 2 * STAGING_HALF + pinned_size(d);
}

/* The pages of a layer with rows of its own: one after the other. */
static int own_pages(struct device *d, struct error *e)
{
    size_t n = (size_t)d->kv_chunks;
    cl_uint *table = mem_alloc(n, sizeof *table);
    int rc;

    if (!table)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the table of pages");
    for (size_t i = 0; i < n; i++)
        table[i] = (cl_uint)i;
    rc = memory_buffer(d, n * sizeof *table, &d->pages, "the table of pages", e);
    if (rc == 0)
        rc = memory_upload(d, d->pages, table, n * sizeof *table, e);
    mem_free(table);
    return rc;
}

int memory_open(struct device *d, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    size_t rows = (size_t)d->base.config.max_rows, used = (size_t)hp->n_experts_used,
           layers = (size_t)hp->n_layers;
    struct scratch_item list[SCRATCH_MAX];
    cl_int rc = CL_SUCCESS;
    int n = scratch_list(d, list);

    for (int i = 0; i < n; i++) {
        if (list[i].bytes &&
            memory_buffer(d, list[i].bytes, scratch_place(d, &list[i]), "working memory", e) < 0)
            return ERR_DEVICE;
        d->stats.scratch_bytes += list[i].bytes;
    }
    if (!(d->tile_table = mem_pages((size_t)d->max_tiles * sizeof *d->tile_table)) ||
        !(d->entry_table = mem_pages(rows * used * sizeof *d->entry_table)) ||
        !(d->scatter_at = mem_alloc(rows * used, sizeof(int))) ||
        !(d->results = mem_pages(rows * used * (size_t)hp->hidden * 4)) ||
        !(d->host_chosen = mem_alloc(rows * used, sizeof(int))) ||
        !(d->host_row = mem_alloc(rows * used, sizeof(int))) ||
        !(d->host_slot = mem_alloc(rows * used, sizeof(int))) ||
        !(d->host_groups = mem_alloc((size_t)hp->n_experts, sizeof *d->host_groups)) ||
        !(d->kv_open = mem_alloc(1, sizeof *d->kv_open)) ||
        !(d->attention = mem_alloc(layers, sizeof *d->attention)) ||
        !(d->joined = mem_alloc(layers, sizeof *d->joined)) ||
        !(d->experts = mem_alloc(layers * (size_t)hp->n_experts, sizeof *d->experts)))
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the block table");
    /* zeros, so far */
    if (memory_upload(d, d->arrivals, d->entry_table, rows * 4, e) < 0 ||
        (d->gate_arrivals && d->token_gate_up &&
         memory_upload(d, d->gate_arrivals, d->results, used * (size_t)d->most_ffn / 8, e) < 0) ||
        (d->head_arrivals && d->most_arrivals <= hp->hidden &&
         memory_upload(d, d->head_arrivals, d->results, (size_t)d->most_arrivals * 4, e) < 0))
        return ERR_DEVICE;
    d->target.coherent = rows_sees(d);
    rows_offer(d, d->tile_table, (size_t)d->max_tiles * sizeof *d->tile_table);
    rows_offer(d, d->entry_table, rows * used * sizeof *d->entry_table);
    d->kv_open[0] = true;
    d->kv_room = 1;
    d->kv_chunks = (d->stride + NUM_CHUNK - 1) / NUM_CHUNK;
    if (own_pages(d, e) < 0)
        return ERR_DEVICE;
    if (d->share)
        return 0;
    if (!cl_injected(&rc))
        d->staging = cl.CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                     2 * STAGING_HALF, NULL, &rc);
    if (cl_check(d, rc, "pinned staging memory", e) < 0)
        return ERR_DEVICE;
    if (!cl_injected(&rc))
        d->staging_map = cl.EnqueueMapBuffer(d->upload, d->staging, CL_TRUE,
                                             CL_MAP_WRITE | CL_MAP_READ, 0, 2 * STAGING_HALF, 0,
                                             NULL, NULL, &rc);
    d->stats.staging_bytes = staging_bytes(d);
    return cl_check(d, rc, "mapping the staging memory", e) < 0 ? ERR_DEVICE : pinned_open(d, e);
}

int memory_kv_values(const struct device *d, int layer)
{
    const struct mixer_shape *s = &hparams_layer(&d->base.config.model->hp, layer)->mixer;

    return s->kv_heads * s->key_dim;
}

int memory_kv_stride(const struct device *d, int layer)
{
    const struct device_config *c = &d->base.config;
    const struct state_config state = {c->kv_k, c->kv_v, c->context, c->max_rows};

    return state_room(&hparams_layer(&c->model->hp, layer)->mixer, &state);
}

/* In such chunks: of so many tokens. */
static int kv_chunks(const struct device *d, int layer, int *tokens)
{
    int stride = memory_kv_stride(d, layer);

    *tokens = stride < NUM_CHUNK ? stride : NUM_CHUNK;
    return (stride + NUM_CHUNK - 1) / NUM_CHUNK;
}

struct kv_place memory_kv_place(const struct device *d, int layer, cl_mem rows)
{
    const struct device_config *c = &d->base.config;
    const struct mixer_shape *s = &hparams_layer(&c->model->hp, layer)->mixer;
    struct kv_place p = {.rows = rows, .pages = d->pages};

    p.chunks = kv_chunks(d, layer, &p.tokens);
    p.head_step = (int)((kv_type_bytes(c->kv_k, s->key_dim) + kv_type_bytes(c->kv_v, s->key_dim)) *
                        (size_t)p.tokens / 16);
    p.page_step = p.head_step * s->kv_heads;
    return p;
}

/* NUM_CHUNK positions a page, as the CPU has them. */
static size_t layer_kv_bytes(const struct device *d, int layer)
{
    struct kv_place p = memory_kv_place(d, layer, NULL);

    return (size_t)p.chunks * (size_t)p.page_step * 16;
}

bool memory_kv_ring(const struct device *d, int layer)
{
    const struct device_config *c = &d->base.config;
    const struct state_config state = {c->kv_k, c->kv_v, c->context, c->max_rows};

    return state_is_ring(&hparams_layer(&c->model->hp, layer)->mixer, &state);
}

bool memory_kv_in_place(const struct device *d)
{
    return d->state.cpu != NULL;
}

void memory_footprint(struct device *d, const struct block_id *blocks, int n_blocks,
                      struct device_stats *out)
{
    struct scratch_item list[SCRATCH_MAX];
    int n = scratch_list(d, list);
    uint64_t matrix[3], bias[3];
    size_t sessions = d->base.config.sessions > 1 ? (size_t)d->base.config.sessions : 1;

    for (int i = 0; i < n; i++)
        out->scratch_bytes += list[i].bytes;
    out->staging_bytes = staging_bytes(d);
    for (int i = 0; i < n_blocks; i++) {
        out->weight_bytes += memory_block_bytes(d, blocks[i]);
        out->shared_bytes += memory_shared_bytes(d, blocks[i]);
        /* where memory is shared they are expected to be the CPU's */
        if (blocks[i].kind == BLOCK_ATTENTION && !(d->share && d->target.coherent))
            out->kv_bytes += layer_kv_bytes(d, blocks[i].layer) * sessions;
    }
    memory_swap_bytes(d, matrix, bias);
    for (int k = 0; k < 3; k++)
        out->stream_bytes += DEVICE_STREAM * (matrix[k] + bias[k]);
}

int memory_kv_take(struct device *d, struct block *b, int session, struct error *e)
{
    int layer = (int)(b - d->attention);
    size_t bytes = layer_kv_bytes(d, layer);

    if (memory_kv_in_place(d))
        return 0;
    if (memory_buffer(d, bytes, &b->kv[session], "the KV cache", e) < 0)
        return ERR_DEVICE;
    b->kv_bytes += bytes;
    d->stats.kv_bytes += bytes;
    return 0;
}

static void kv_give(struct device *d, struct block *b, int session)
{
    size_t bytes = layer_kv_bytes(d, (int)(b - d->attention));

    if (!b->kv || !b->kv[session])
        return;
    memory_release(&b->kv[session]);
    b->kv_bytes -= bytes;
    d->stats.kv_bytes -= bytes;
}

/* Grows every table to sessions 0 .. n-1. */
static int kv_tables(struct device *d, int n, struct error *e)
{
    bool *open = mem_resize(d->kv_open, (size_t)n, sizeof *open);

    d->kv_open = open ? open : d->kv_open;
    for (int l = 0; l < d->base.config.model->hp.n_layers && open; l++) {
        struct block *b = &d->attention[l];
        cl_mem *kv = b->kv ? mem_resize(b->kv, (size_t)n, sizeof *kv) : NULL;

        if (b->kv && !kv)
            open = NULL;
        if (kv) {
            memset(kv + d->kv_room, 0, (size_t)(n - d->kv_room) * sizeof *kv);
            b->kv = kv;
        }
    }
    if (!open)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the table of sessions");
    memset(open + d->kv_room, 0, (size_t)(n - d->kv_room) * sizeof *open);
    d->kv_room = n;
    return 0;
}

int memory_state_open(struct device *d, int session, struct error *e)
{
    int layers = d->base.config.model->hp.n_layers, rc = 0;

    if (session < 0 || (session < d->kv_room && d->kv_open[session]))
        return error_set(e, ERR_DEVICE, "OpenCL %s: session %d is open already",
                         d->target.info.name, session);
    if ((session >= d->kv_room && (rc = kv_tables(d, session + 1, e)) < 0) ||
        (rc = rows_state_grown(d, d->kv_room, e)) < 0 || (rc = rows_ring_open(d, session, e)) < 0)
        return rc;
    for (int l = 0; l < layers && rc == 0; l++)
        if (d->attention[l].kv)
            rc = memory_kv_take(d, &d->attention[l], session, e);
    for (int l = 0; l < layers && rc < 0; l++)
        kv_give(d, &d->attention[l], session);
    if (rc < 0)
        rows_ring_close(d, session);
    d->kv_open[session] = rc == 0;
    return rc;
}

void memory_state_close(struct device *d, int session)
{
    if (session < 0 || session >= d->kv_room || !d->kv_open[session])
        return;
    if (!d->lost)
        cl.Finish(d->queue);
    recordings_forget(d);
    for (int l = 0; l < d->base.config.model->hp.n_layers; l++)
        kv_give(d, &d->attention[l], session);
    rows_ring_close(d, session);
    d->kv_open[session] = false;
}

void memory_close(struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct scratch_item list[SCRATCH_MAX];
    int n = scratch_list(d, list);
    size_t entries = (size_t)d->base.config.max_rows * (size_t)hp->n_experts_used;

    if (d->attention)
        for (int l = 0; l < hp->n_layers; l++)
            memory_block_release(d, &d->attention[l]);
    for (int l = 0; l < hp->n_layers && d->joined && d->experts; l++)
        joined_experts_close(d, l);
    if (d->experts)
        for (int i = 0; i < hp->n_layers * hp->n_experts; i++)
            memory_block_release(d, &d->experts[i]);
    memory_block_release(d, &d->head);
    for (int i = 0; i < n; i++)
        memory_release(scratch_place(d, &list[i]));
    for (int i = 0; i < 2; i++)
        if (d->staging_event[i])
            cl.ReleaseEvent(d->staging_event[i]);
    if (d->staging_map) {
        cl.EnqueueUnmapMemObject(d->upload, d->staging, d->staging_map, 0, NULL, NULL);
        cl.Finish(d->upload);
    }
    memory_release(&d->staging);
    pinned_close(d);
    rows_close(d);
    mem_pages_free(d->results, entries * (size_t)hp->hidden * 4);
    mem_free(d->scatter_at);
    mem_free(d->host_chosen);
    mem_free(d->host_row);
    mem_free(d->host_slot);
    mem_free(d->host_groups);
    mem_pages_free(d->tile_table, (size_t)d->max_tiles * sizeof *d->tile_table);
    mem_pages_free(d->entry_table, entries * sizeof *d->entry_table);
    mem_free(d->kv_open);
    mem_free(d->attention);
    mem_free(d->joined);
    mem_free(d->experts);
}
