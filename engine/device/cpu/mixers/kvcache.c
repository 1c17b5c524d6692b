/* The key/value cache of the CPU device: the layout of a page (kvpool.c). A page holds NUM_CHUNK
 * tokens of a session. Per layer: head by head, its keys, then its values; so attention reads a
 * chunk in one stream. A chunk of a layer with a ring has the same layout in its ring (kvring.c).
 * Layers may differ in heads and widths, and have only keys (MLA) or nothing (layer_layout). Keys
 * of a head are in blocks of 16 tokens, [key_dim][16], so that the scores of 16 tokens are in
 * separate lanes; values token by token (Q8_0: a token's scales, then its values), and so latent
 * rows, which many heads use both as key and value. Written by compute threads (each its own head),
 * moved by the engine thread. */
#include "engine/base/mem.h"
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#define SYSTEM_PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

int kv_layout(struct cpu_device *d, struct error *e)
{
    const struct hparams *hp = &d->model->hp;
    const struct state_config room = {d->kv_k, d->kv_v, d->context, d->max_rows};
    size_t tokens = ((size_t)d->context + NUM_LANES - 1) / NUM_LANES * NUM_LANES, unit;

    tokens = tokens < NUM_CHUNK ? tokens : NUM_CHUNK;
    if (state_not_blocks(hp, d->kv_k, d->kv_v))
        return error_set(
            e, ERR_USAGE,
            "a Q8_0 key/value cache needs heads of a multiple of 32, not %d; use -ctk f16 -ctv f16",
            state_not_blocks(hp, d->kv_k, d->kv_v));
    if (!(d->layouts = mem_alloc((size_t)hp->n_layers, sizeof *d->layouts)))
        return error_set(e, ERR_MEMORY, "no memory for the layout of the key/value cache");
    d->page_tokens = tokens;
    d->page_bytes = d->fixed_bytes = d->drafts_bytes = d->ring_bytes = 0;
    for (int i = 0; i < hp->n_layers; i++) {
        struct layer_layout *l = &d->layouts[i];
        const struct mixer_shape *m = &shape_of(d, i)->mixer;

        l->keeps = state_size(m, d->kv_k, d->kv_v);
        l->key_block = kv_type_bytes(d->kv_k, l->keeps.key_dim) * NUM_LANES;
        l->value_row = kv_type_bytes(d->kv_v, l->keeps.value_dim);
        l->head_bytes = (l->key_block / NUM_LANES + l->value_row) * tokens;
        l->ring_chunks = state_is_ring(m, &room) ? state_room(m, &room) / NUM_CHUNK : 0;
        l->at = l->ring_chunks ? d->ring_bytes : d->page_bytes;
        l->key_heads = tune_heads(m->key_dim);
        l->value_heads = tune_heads(shape_value_dim(m));
        if (l->ring_chunks)
            d->ring_bytes += l->head_bytes * (size_t)l->keeps.heads * (size_t)l->ring_chunks;
        else
            d->page_bytes += l->head_bytes * (size_t)l->keeps.heads;
        l->fixed_at = d->fixed_bytes;
        d->fixed_bytes += (l->keeps.fixed_bytes + 63) & ~(size_t)63;
        l->drafts_at = d->drafts_bytes;
        if (l->keeps.fixed_bytes)
            d->drafts_bytes += (size_t)d->base.config.drafts *
                               (size_t)(recurrent_width(d, i) + shape_convolved_columns(m)) *
                               sizeof(float);
    }
    if (!d->page_bytes)
        d->page_bytes = NUM_LANES; /* no layer keeps all rows */
    d->kv_bytes = d->page_bytes * (size_t)d->chunks_max;
    unit = d->kv_bytes < HUGE_PAGE ? SYSTEM_PAGE : HUGE_PAGE;
    d->segment_bytes = (d->kv_bytes + unit - 1) / unit * unit;
    return 0;
}

uint8_t *kv_keys(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                 int chunk)
{
    const struct layer_layout *l = layout_of(d, layer);

    assert(layer >= 0 && layer < d->model->hp.n_layers);
    assert(head >= 0 && head < l->keeps.heads);
    assert(chunk >= 0 && chunk < d->chunks_max && s->pages[chunk]);
    if (l->ring_chunks)
        return s->rings + l->at +
               l->head_bytes * (size_t)(chunk % l->ring_chunks * l->keeps.heads + head);
    return s->pages[chunk] + l->at + l->head_bytes * (size_t)head;
}

uint8_t *kv_values(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                   int chunk)
{
    return kv_keys(d, s, layer, head, chunk) +
           layout_of(d, layer)->key_block / NUM_LANES * d->page_tokens;
}

/* Converts a token's n values from the exchange layout (Q8_0: each block's scale before it) to the
 * cache's (all scales first), or back. */
static void plain_row(enum kv_type type, int n, uint8_t *at, uint8_t *row, bool write)
{
    int blocks = n / NUM_BLOCK;

    if (type != KV_Q8_0) {
        memcpy(write ? at : row, write ? row : at, kv_type_bytes(type, n));
        return;
    }
    for (int b = 0; b < blocks; b++, row += KV_Q8_0_BYTES) {
        uint8_t *scale = at + 2 * b, *q = at + 2 * blocks + b * NUM_BLOCK;

        memcpy(write ? scale : row, write ? row : scale, 2);
        memcpy(write ? q : row + 2, write ? row + 2 : q, NUM_BLOCK);
    }
}

static void value_row(const struct cpu_device *d, int layer, uint8_t *at, uint8_t *row, bool write)
{
    plain_row(d->kv_v, layout_of(d, layer)->keeps.value_dim, at, row, write);
}

/* Whether the layer's only key is a latent row, which is also its value; what lies where values do
 * is the key of its indexer. */
static bool is_latent(const struct cpu_device *d, int layer)
{
    return shape_of(d, layer)->mixer.kind == MIXER_MLA;
}

static uint8_t *latent_at(const struct cpu_device *d, const struct kv_state *s, int layer, int pos)
{
    return kv_keys(d, s, layer, 0, pos / NUM_CHUNK) +
           (size_t)(pos % NUM_CHUNK) * (layout_of(d, layer)->key_block / NUM_LANES);
}

static uint8_t *value_at(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                         int pos)
{
    return kv_values(d, s, layer, head, pos / NUM_CHUNK) +
           (size_t)(pos % NUM_CHUNK) * layout_of(d, layer)->value_row;
}

/* Copies a token's key from the row-major exchange layout into its lane, or back. */
static void key_lane(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                     int pos, uint8_t *row, bool write)
{
    int n = layout_of(d, layer)->keeps.key_dim, lane = pos % NUM_LANES;
    uint8_t *block = kv_keys(d, s, layer, head, pos / NUM_CHUNK) +
                     (size_t)(pos % NUM_CHUNK / NUM_LANES) * layout_of(d, layer)->key_block;

    if (d->kv_k == KV_Q8_0) {
        for (int b = 0; b < n / NUM_BLOCK;
             b++, block += KV_Q8_0_BYTES * NUM_LANES, row += KV_Q8_0_BYTES) {
            uint8_t *q = block + 2 * NUM_LANES + lane;

            if (write) {
                memcpy(block + 2 * lane, row, 2);
                for (int i = 0; i < NUM_BLOCK; i++)
                    q[i * NUM_LANES] = row[2 + i];
            } else {
                memcpy(row, block + 2 * lane, 2);
                for (int i = 0; i < NUM_BLOCK; i++)
                    row[2 + i] = q[i * NUM_LANES];
            }
        }
    } else if (d->kv_k == KV_F16) {
        for (int i = 0; i < n; i++)
            memcpy(write ? block + 2 * (i * NUM_LANES + lane) : row + 2 * i,
                   write ? row + 2 * i : block + 2 * (i * NUM_LANES + lane), 2);
    } else {
        for (int i = 0; i < n; i++)
            memcpy(write ? block + 4 * (i * NUM_LANES + lane) : row + 4 * i,
                   write ? row + 4 * i : block + 4 * (i * NUM_LANES + lane), 4);
    }
}

/* x (n) in the cache type, row-major. */
static void round_row(const struct cpu_device *d, enum kv_type type, const float *x, int n,
                      uint8_t *row)
{
    if (type == KV_F32) {
        memcpy(row, x, (size_t)n * 4);
    } else if (type == KV_F16) {
        d->k->to_f16(x, n, (uint16_t *)(void *)row);
    } else {
        for (int b = 0; b < n / NUM_BLOCK; b++, row += KV_Q8_0_BYTES) {
            uint16_t h = num_kv_quantise_block(x + b * NUM_BLOCK, (int8_t *)row + 2);

            memcpy(row, &h, 2);
        }
    }
}

void kv_store_key(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                  int pos, const float *x)
{
    _Alignas(64) uint8_t row[1024 * 4];

    assert(pos >= 0 && pos < d->context);
    round_row(d, d->kv_k, x, layout_of(d, layer)->keeps.key_dim, row);
    key_lane(d, s, layer, head, pos, row, true);
}

void kv_store_value(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                    int pos, const float *x)
{
    _Alignas(64) uint8_t row[1024 * 4];
    int n = layout_of(d, layer)->keeps.value_dim;

    assert(pos >= 0 && pos < d->context);
    if (d->kv_v != KV_Q8_0) {
        round_row(d, d->kv_v, x, n, value_at(d, s, layer, head, pos));
        return;
    }
    round_row(d, d->kv_v, x, n, row);
    value_row(d, layer, value_at(d, s, layer, head, pos), row, true);
}

void kv_store_latent(const struct cpu_device *d, const struct kv_state *s, int layer, int pos,
                     const float *x)
{
    _Alignas(64) uint8_t row[1024 * 4];
    int n = layout_of(d, layer)->keeps.key_dim;

    assert(pos >= 0 && pos < d->context);
    round_row(d, d->kv_k, x, n, row);
    plain_row(d->kv_k, n, latent_at(d, s, layer, pos), row, true);
}

int kv_move_rows(struct cpu_device *d, const struct kv_move *m, struct error *e)
{
    const struct kv_state *s;
    const struct layer_layout *l;
    uint8_t *data = m->data;

    if (m->fixed)
        return fixed_move(d, m, e);
    if (m->layer < 0 || m->layer >= d->model->hp.n_layers || m->pos < 0 || m->count < 0 ||
        m->count > d->context - m->pos)
        return error_set(e, ERR_DEVICE, "key/value rows %d+%d of layer %d lie outside the cache",
                         m->pos, m->count, m->layer);
    if (!(s = kv_state_reserve(d, m->session, m->write ? m->pos : m->pos + m->count,
                               m->pos + m->count, e)))
        return ERR_DEVICE;
    l = layout_of(d, m->layer);
    for (int t = m->pos; t < m->pos + m->count; t++) {
        if (is_latent(d, m->layer)) {
            plain_row(d->kv_k, l->keeps.key_dim, latent_at(d, s, m->layer, t), data, m->write);
            data += l->key_block / NUM_LANES;
            if (l->value_row)
                value_row(d, m->layer, value_at(d, s, m->layer, 0, t), data, m->write);
            data += l->value_row;
            continue;
        }
        for (int h = 0; h < l->keeps.heads; h++, data += l->key_block / NUM_LANES)
            key_lane(d, s, m->layer, h, t, data, m->write);
        for (int h = 0; h < l->keeps.heads && l->value_row; h++, data += l->value_row)
            value_row(d, m->layer, value_at(d, s, m->layer, h, t), data, m->write);
    }
    return 0;
}
