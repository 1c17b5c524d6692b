/* Memory of the device: scratch (allocated once at open), blocks of weights with their KV cache,
 * and uploads of weights. Engine thread. If host and device share memory a matrix is used in place;
 * else it is copied through two pinned halves on a separate queue, so that copies overlap kernels.
 * One allocation per matrix, below the device's largest. */
#include "gpu/internal.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"
#include "engine/device/state.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

bool memory_expert_alike(const struct expert_weights *x)
{
    return (!x->gate.bytes || x->gate.type == x->up.type) &&
           dtype_is_quantised(x->up.type) == dtype_is_quantised(x->down.type);
}

bool memory_together(const struct device *d, struct block_id id)
{
    return id.kind != BLOCK_EXPERT ||
           memory_expert_alike(&d->base.config.model->layers[id.layer].experts[id.expert]);
}

int memory_expert_check(struct device *d, const struct expert_weights *x, struct error *e)
{
    return memory_expert_alike(x)
               ? 0
               : error_set(e, ERR_DEVICE, "OpenCL %s: no kernels for an expert of %s, %s and %s",
                           d->target.info.name,
                           dtype_info(x->gate.bytes ? x->gate.type : x->up.type)->word,
                           dtype_info(x->up.type)->word, dtype_info(x->down.type)->word);
}

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

static bool all_rows(const struct device *d, int layer)
{
    const struct device_config *c = &d->base.config;
    const struct state_config state = {c->kv_k, c->kv_v, c->context, c->max_rows};

    return !state_is_ring(&hparams_layer(&c->model->hp, layer)->mixer, &state);
}

bool memory_kv_in_place(const struct device *d, int layer)
{
    return d->state.cpu && all_rows(d, layer);
}

/* Bytes that block_begin allocates, shown by --fit: the router is padded here. */
static size_t block_weight_bytes(const struct device *d, struct block_id id)
{
    const struct model *m = d->base.config.model;
    struct block_bytes b = model_block_parts(m, id);

    if (b.router)
        b.router = (size_t)m->hp.hidden * (size_t)d->padded_experts * 4 +
                   ((m->layers[id.layer].score_bias != NULL) +
                    (m->layers[id.layer].router_bias != NULL)) *
                       (size_t)hparams_layer(&m->hp, id.layer)->ffn.experts * 4;
    return b.matrices + b.biases + b.norms + b.router;
}

/* Packed matrices start on pages, those mapped from a file rarely do. */
static size_t shared_bytes(const struct device *d, struct block_id id)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(d->base.config.model, id, list);
    size_t bytes = 0;

    for (int i = 0; i < n && d->share; i++) {
        const struct matrix *w = list[i].w;

        bytes += !w->paged && w->bytes <= d->target.info.max_alloc &&
                         (w->width || d->target.info.is_cpu_type)
                     ? w->bytes
                     : 0;
    }
    return bytes;
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
        out->weight_bytes += block_weight_bytes(d, blocks[i]);
        out->shared_bytes += shared_bytes(d, blocks[i]);
        /* where memory is shared they are expected to be the CPU's */
        if (blocks[i].kind == BLOCK_ATTENTION &&
            !(d->share && d->target.coherent && all_rows(d, blocks[i].layer)))
            out->kv_bytes += layer_kv_bytes(d, blocks[i].layer) * sessions;
    }
    memory_swap_bytes(d, matrix, bias);
    for (int k = 0; k < 3; k++)
        out->stream_bytes += DEVICE_STREAM * (matrix[k] + bias[k]);
}

void memory_swap_bytes(const struct device *d, uint64_t matrix[3], uint64_t bias[3])
{
    const struct model *m = d->base.config.model;

    model_largest_expert(m, matrix);
    for (int k = 0; k < 3; k++)
        bias[k] = d->biased && matrix[k] ? (uint64_t)(k < 2 ? d->most_ffn : m->hp.hidden) * 4 : 0;
}

struct block *memory_block(struct device *d, struct block_id id)
{
    const struct hparams *hp = &d->base.config.model->hp;

    switch (id.kind) {
    case BLOCK_ATTENTION: return &d->attention[id.layer];
    case BLOCK_EXPERT: return &d->experts[id.layer * hp->n_experts + id.expert];
    default: return &d->head;
    }
}

/* Allocates one session's KV of an attention block. */
static int kv_take(struct device *d, struct block *b, int session, struct error *e)
{
    int layer = (int)(b - d->attention);
    size_t bytes = layer_kv_bytes(d, layer);

    if (memory_kv_in_place(d, layer))
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
        (rc = rows_state_grown(d, d->kv_room, e)) < 0)
        return rc;
    for (int l = 0; l < layers && rc == 0; l++)
        if (d->attention[l].kv)
            rc = kv_take(d, &d->attention[l], session, e);
    for (int l = 0; l < layers && rc < 0; l++)
        kv_give(d, &d->attention[l], session);
    d->kv_open[session] = rc == 0;
    return rc;
}

void memory_state_close(struct device *d, int session)
{
    if (session < 0 || session >= d->kv_room || !d->kv_open[session])
        return;
    if (!d->lost)
        cl.Finish(d->queue);
    for (int l = 0; l < d->base.config.model->hp.n_layers; l++)
        kv_give(d, &d->attention[l], session);
    d->kv_open[session] = false;
}

static void block_release(struct device *d, struct block *b)
{
    for (int i = 0; i < b->n_parts; i++) {
        struct part *p = &b->part[i];

        if (p->shared)
            d->stats.shared_bytes -= p->m->bytes;
        memory_release(&p->mem);
        memory_release(&p->bias);
    }
    d->stats.weight_bytes -= b->weight_bytes;
    d->stats.kv_bytes -= b->kv_bytes;
    memory_release(&b->norm_w);
    memory_release(&b->norm_b);
    memory_release(&b->after_w);
    memory_release(&b->after_b);
    memory_release(&b->expert_after_w);
    memory_release(&b->expert_after_b);
    memory_release(&b->q_norm);
    memory_release(&b->k_norm);
    memory_release(&b->sinks);
    memory_release(&b->expert_norm_w);
    memory_release(&b->expert_norm_b);
    for (int i = 0; i < APART_NORMS; i++) {
        memory_release(&b->apart_w[i]);
        memory_release(&b->apart_b[i]);
    }
    memory_routing_release(&b->routing);
    for (int i = 0; b->kv && i < d->kv_room; i++)
        memory_release(&b->kv[i]);
    mem_free(b->kv);
    memset(b, 0, sizeof *b);
}

void memory_drop(struct device *d, struct block_id id)
{
    struct block *b = memory_block(d, id);

    if (b->state == BLOCK_ABSENT)
        return;
    if (b->state == BLOCK_LOADING)
        cl.Finish(d->upload);
    if (id.kind == BLOCK_EXPERT)
        joined_experts_leave(d, id.layer, id.expert);
    block_release(d, b);
}

static int small(struct device *d, cl_mem *out, const float *data, size_t n, struct error *e)
{
    if (!data)
        return 0;
    if (memory_buffer(d, n * 4, out, "norms and biases", e) < 0)
        return ERR_DEVICE;
    return memory_upload(d, *out, data, n * 4, e);
}

/* The router, and behind it the shared expert's gate, as (column, padded experts) where WIDE, else
 * as (column / 4, padded experts, 4): neighbouring work-items read neighbouring experts either way,
 * and a GPU's four columns a load. */
static int put_router(struct device *d, int layer, cl_mem *out, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_weights *l = &d->base.config.model->layers[layer];
    int experts = hparams_layer(hp, layer)->ffn.experts, rc, fours = d->wide ? 1 : 4;
    size_t n = (size_t)hp->hidden * (size_t)d->padded_experts;
    float *t = mem_alloc(n, sizeof *t);

    if (!t)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for a router");
    for (int x = 0; x < experts + (l->shared_router != NULL); x++) {
        const float *row = x < experts ? l->router + (size_t)x * (size_t)hp->hidden
                                       : l->shared_router;

        for (int c = 0; c < hp->hidden; c++)
            t[(size_t)(c / fours * d->padded_experts + x) * (size_t)fours + (size_t)(c % fours)] =
                row[c];
    }
    rc = small(d, out, t, n, e);
    mem_free(t);
    return rc;
}

int memory_routing(struct device *d, int layer, struct routing *out, struct error *e)
{
    const struct model *m = d->base.config.model;
    const struct layer_weights *l = &m->layers[layer];
    size_t experts = (size_t)hparams_layer(&m->hp, layer)->ffn.experts;

    if (!l->router)
        return 0;
    return small(d, &out->score_bias, l->score_bias, experts, e) < 0 ||
                   small(d, &out->choice_bias, l->router_bias, experts, e) < 0 ||
                   small(d, &out->expert_scale, l->expert_scale, experts, e) < 0
               ? ERR_DEVICE
               : put_router(d, layer, &out->router, e);
}

void memory_routing_release(struct routing *r)
{
    memory_release(&r->router);
    memory_release(&r->score_bias);
    memory_release(&r->choice_bias);
    memory_release(&r->expert_scale);
}

/* Whether host memory can be used in place: only if the driver will not copy it silently. */
static bool shareable(const struct device *d, const struct matrix *m)
{
    uintptr_t at = (uintptr_t)m->data;

    if (!d->share || m->paged) /* experts on disk have no fixed address in memory */
        return false;
    if (d->target.info.is_cpu_type)
        return at % (m->width ? 64 : (uintptr_t)dtype_info(m->type)->bytes) == 0;
    return at % PAGE == 0;
}

static int part_begin(struct device *d, struct part *p, enum block_kind kind,
                      const struct matrix *m, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!kernel_set_supports(d, kind, m->type))
        return error_set(e, ERR_DEVICE, "OpenCL %s: no kernels for %s weights of this kind",
                         d->target.info.name, dtype_info(m->type)->word);

    p->m = m;
    if (m->bytes <= d->target.info.max_alloc && shareable(d, m)) {
        if (!cl_injected(&rc)) /* drivers require whole cache lines; matrices are padded to them */
            p->mem = cl.CreateBuffer(d->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR,
                                     (m->bytes + 63) / 64 * 64, (void *)(uintptr_t)m->data, &rc);
        if (rc == CL_SUCCESS) {
            p->shared = true;
            p->done = m->bytes;
        } else {
            p->mem = NULL;
        }
    }
    if (!p->mem && memory_buffer(d, m->bytes, &p->mem, "weights", e) < 0)
        return ERR_DEVICE;
    if (p->shared)
        d->stats.shared_bytes += m->bytes;
    return small(d, &p->bias, m->bias, (size_t)m->rows, e);
}

static int apart_norms(struct device *d, struct block *b, const struct layer_weights *l,
                       struct error *e)
{
    const struct norm_weights *const norm[APART_NORMS] = {&l->router_norm, &l->routed_norm,
                                                          &l->routed_after, &l->shared_after};
    size_t hidden = (size_t)d->base.config.model->hp.hidden;

    for (int i = 0; i < APART_NORMS; i++)
        if (small(d, &b->apart_w[i], norm[i]->weight, hidden, e) < 0 ||
            small(d, &b->apart_b[i], norm[i]->bias, hidden, e) < 0)
            return ERR_DEVICE;
    return 0;
}

/* Uploads an attention block's data besides its matrices. */
static int layer_begin(struct device *d, struct block *b, int layer, struct error *e)
{
    const struct model *m = d->base.config.model;
    const struct layer_weights *l = &m->layers[layer];
    size_t hidden = (size_t)m->hp.hidden;
    int rc = 0;

    if (small(d, &b->norm_w, l->attention_norm.weight, hidden, e) < 0 ||
        small(d, &b->norm_b, l->attention_norm.bias, hidden, e) < 0 ||
        small(d, &b->after_w, l->attention_after.weight, hidden, e) < 0 ||
        small(d, &b->after_b, l->attention_after.bias, hidden, e) < 0 ||
        small(d, &b->expert_after_w, l->expert_after.weight, hidden, e) < 0 ||
        small(d, &b->expert_after_b, l->expert_after.bias, hidden, e) < 0 ||
        small(d, &b->expert_norm_w, l->expert_norm.weight, hidden, e) < 0 ||
        small(d, &b->expert_norm_b, l->expert_norm.bias, hidden, e) < 0 ||
        small(d, &b->q_norm, l->q_norm, model_qk_norm_values(m, layer, true), e) < 0 ||
        small(d, &b->k_norm, l->k_norm, model_qk_norm_values(m, layer, false), e) < 0 ||
        small(d, &b->sinks, l->sinks, (size_t)hparams_layer(&m->hp, layer)->mixer.heads, e) < 0 ||
        apart_norms(d, b, l, e) < 0 || memory_routing(d, layer, &b->routing, e) < 0)
        return ERR_DEVICE;
    if (!(b->kv = mem_alloc((size_t)d->kv_room, sizeof *b->kv)))
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for the table of sessions");
    for (int i = 0; i < d->kv_room && rc == 0; i++)
        rc = d->kv_open[i] ? kv_take(d, b, i, e) : 0;
    return rc;
}

static int block_begin(struct device *d, struct block *b, struct block_id id, struct error *e)
{
    const struct model *m = d->base.config.model;
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(m, id, list), rc = 0;

    b->state = BLOCK_LOADING;
    b->weight_bytes = block_weight_bytes(d, id);
    d->stats.weight_bytes += b->weight_bytes;
    if (id.kind == BLOCK_HEAD) {
        if (small(d, &b->norm_w, m->output_norm.weight, (size_t)m->hp.hidden, e) < 0 ||
            small(d, &b->norm_b, m->output_norm.bias, (size_t)m->hp.hidden, e) < 0)
            return ERR_DEVICE;
    } else if (id.kind == BLOCK_EXPERT) {
        if (memory_expert_check(d, &m->layers[id.layer].experts[id.expert], e) < 0)
            return ERR_DEVICE;
    } else if (layer_begin(d, b, id.layer, e) < 0) {
        return ERR_DEVICE;
    }
    for (int i = 0; i < n && rc == 0; i++) {
        int at = (int)(list[i].part - (id.kind == BLOCK_EXPERT ? MATRIX_GATE
                                       : id.kind == BLOCK_HEAD ? MATRIX_HEAD
                                                               : MATRIX_Q));

        if (id.kind == BLOCK_ATTENTION && list[i].part == MATRIX_Z)
            at = PART_GATES;
        assert(at >= 0 && at < PARTS); /* unsupported blocks are never put */
        b->n_parts = at + 1;
        rc = part_begin(d, &b->part[at], id.kind, list[i].w, e);
    }
    return rc;
}

/* Copies one piece through the next pinned half. */
static int copy_piece(struct device *d, struct part *p, size_t bytes, struct error *e)
{
    int half = d->staging_half ^= 1;
    size_t offset = (size_t)half * STAGING_HALF;
    cl_int rc = CL_SUCCESS;

    if (!d->staging_map) { /* shared memory, but this matrix could not be used in place */
        if (!cl_injected(&rc))
            rc = cl.EnqueueWriteBuffer(d->upload, p->mem, CL_TRUE, p->done, bytes,
                                       (const char *)p->m->data + p->done, 0, NULL, NULL);
    } else {
        if (d->staging_event[half]) {
            rc = cl.WaitForEvents(1, &d->staging_event[half]);
            cl.ReleaseEvent(d->staging_event[half]);
            d->staging_event[half] = NULL;
        }
        memcpy((char *)d->staging_map + offset, (const char *)p->m->data + p->done, bytes);
        if (rc == CL_SUCCESS && !cl_injected(&rc))
            rc = cl.EnqueueWriteBuffer(d->upload, p->mem, CL_FALSE, p->done, bytes,
                                       (char *)d->staging_map + offset, 0, NULL,
                                       &d->staging_event[half]);
        if (rc == CL_SUCCESS)
            rc = cl.Flush(d->upload);
    }
    p->done += bytes;
    d->stats.uploaded_bytes += bytes;
    return cl_check(d, rc, "uploading weights", e);
}

int memory_put(struct device *d, struct block_id id, size_t max_bytes, struct error *e)
{
    struct block *b = memory_block(d, id);
    size_t left = max_bytes ? max_bytes : 1;
    cl_int rc = CL_SUCCESS;

    if (b->state == BLOCK_RESIDENT)
        return 1;
    if (d->lost)
        return error_set(e, ERR_DEVICE, "OpenCL %s: the device was lost", d->target.info.name);
    if (b->state == BLOCK_ABSENT && block_begin(d, b, id, e) < 0)
        goto fail;
    while (b->at < b->n_parts) {
        struct part *p = &b->part[b->at];
        size_t bytes = p->m ? p->m->bytes - p->done : 0;

        if (bytes == 0) {
            b->at++;
            continue;
        }
        if (left == 0)
            return 0;
        bytes = bytes < left ? bytes : left;
        bytes = bytes < STAGING_HALF ? bytes : STAGING_HALF;
        if (copy_piece(d, p, bytes, e) < 0)
            goto fail;
        left -= bytes;
    }
    if (left == 0 && d->staging_map)
        return 0; /* the last piece is copied while the next token is computed */
    if (d->staging_map && !cl_injected(&rc))
        rc = cl.Finish(d->upload);
    if (cl_check(d, rc, "uploading weights", e) < 0)
        goto fail;
    b->state = BLOCK_RESIDENT;
    if (id.kind == BLOCK_EXPERT && d->joined[id.layer].state == JOINED_FAILED)
        d->joined[id.layer].state = JOINED_NOT; /* it may be the last one that lacked */
    return 1;
fail:
    if (!d->lost)
        cl.Finish(d->upload);
    block_release(d, b);
    return ERR_DEVICE;
}

void memory_close(struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct scratch_item list[SCRATCH_MAX];
    int n = scratch_list(d, list);
    size_t entries = (size_t)d->base.config.max_rows * (size_t)hp->n_experts_used;

    if (d->attention)
        for (int l = 0; l < hp->n_layers; l++)
            block_release(d, &d->attention[l]);
    for (int l = 0; l < hp->n_layers && d->joined && d->experts; l++)
        joined_experts_close(d, l);
    if (d->experts)
        for (int i = 0; i < hp->n_layers * hp->n_experts; i++)
            block_release(d, &d->experts[i]);
    block_release(d, &d->head);
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
