/* The key/value cache of the CPU device: what lies in a page (kvpool.c).
 * A page holds NUM_CHUNK tokens of a session. Per layer: head by head, its keys, then its values;
 * so attention reads a chunk in one stream.
 * Keys of a head stand in blocks of 16 tokens, [head_dim][16], so that the scores of 16 tokens come
 * one a lane; values token by token (Q8_0: a token's scales, then its values). Written by compute
 * threads (each its own head), moved by the engine thread. */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

int kv_layout(struct cpu_device *d, struct error *e)
{
    const struct hparams *hp = &d->model->hp;
    size_t tokens = ((size_t)d->context + NUM_LANES - 1) / NUM_LANES * NUM_LANES;

    tokens = tokens < NUM_CHUNK ? tokens : NUM_CHUNK;
    if ((d->kv_k == KV_Q8_0 || d->kv_v == KV_Q8_0) && hp->common.mixer.key_dim % NUM_BLOCK)
        return error_set(
            e, ERR_USAGE,
            "a Q8_0 key/value cache needs heads of a multiple of 32, not %d; use -ctk f16 -ctv f16",
            hp->common.mixer.key_dim);
    d->key_block = kv_type_bytes(d->kv_k, hp->common.mixer.key_dim) * NUM_LANES;
    d->value_row = kv_type_bytes(d->kv_v, hp->common.mixer.key_dim);
    d->page_tokens = tokens;
    d->page_bytes = (d->key_block / NUM_LANES + d->value_row) * tokens *
                    (size_t)hp->common.mixer.kv_heads * (size_t)hp->n_layers;
    d->kv_bytes = d->page_bytes * (size_t)d->chunks_max;
    return 0;
}

uint8_t *kv_keys(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                 int chunk)
{
    size_t heads = (size_t)d->model->hp.common.mixer.kv_heads * (size_t)layer + (size_t)head;

    assert(layer >= 0 && layer < d->model->hp.n_layers);
    assert(head >= 0 && head < d->model->hp.common.mixer.kv_heads);
    assert(chunk >= 0 && chunk < d->chunks_max && s->pages[chunk]);
    return s->pages[chunk] + (d->key_block / NUM_LANES + d->value_row) * d->page_tokens * heads;
}

uint8_t *kv_values(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                   int chunk)
{
    return kv_keys(d, s, layer, head, chunk) + d->key_block / NUM_LANES * d->page_tokens;
}

/* A token's values from the exchange form (Q8_0: each block's scale before it) into the cache's
 * (all scales first), or back. */
static void value_row(const struct cpu_device *d, uint8_t *at, uint8_t *row, bool write)
{
    int blocks = d->model->hp.common.mixer.key_dim / NUM_BLOCK;

    if (d->kv_v != KV_Q8_0) {
        memcpy(write ? at : row, write ? row : at, d->value_row);
        return;
    }
    for (int b = 0; b < blocks; b++, row += KV_Q8_0_BYTES) {
        uint8_t *scale = at + 2 * b, *q = at + 2 * blocks + b * NUM_BLOCK;

        memcpy(write ? scale : row, write ? row : scale, 2);
        memcpy(write ? q : row + 2, write ? row + 2 : q, NUM_BLOCK);
    }
}

static uint8_t *value_at(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                         int pos)
{
    return kv_values(d, s, layer, head, pos / NUM_CHUNK) + (size_t)(pos % NUM_CHUNK) * d->value_row;
}

/* A token's key from the row-major exchange form into its lane, or back. */
static void key_lane(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                     int pos, uint8_t *row, bool write)
{
    int n = d->model->hp.common.mixer.key_dim, lane = pos % NUM_LANES;
    uint8_t *block = kv_keys(d, s, layer, head, pos / NUM_CHUNK) +
                     (size_t)(pos % NUM_CHUNK / NUM_LANES) * d->key_block;

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

/* x in the cache type, row-major. */
static void round_row(const struct cpu_device *d, enum kv_type type, const float *x, uint8_t *row)
{
    int n = d->model->hp.common.mixer.key_dim;

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
    assert(pos >= 0 && pos < d->context);
    round_row(d, d->kv_k, x, row);
    key_lane(d, s, layer, head, pos, row, true);
}

void kv_store_value(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                    int pos, const float *x)
{
    _Alignas(64) uint8_t row[1024 * 4];

    assert(pos >= 0 && pos < d->context);
    assert(pos >= 0 && pos < d->context);
    if (d->kv_v != KV_Q8_0) {
        round_row(d, d->kv_v, x, value_at(d, s, layer, head, pos));
        return;
    }
    round_row(d, d->kv_v, x, row);
    value_row(d, value_at(d, s, layer, head, pos), row, true);
}

int kv_move_rows(struct cpu_device *d, const struct kv_move *m, struct error *e)
{
    const struct hparams *hp = &d->model->hp;
    size_t key_row = kv_type_bytes(d->kv_k, hp->common.mixer.key_dim);
    const struct kv_state *s;
    uint8_t *data = m->data;

    if (m->layer < 0 || m->layer >= hp->n_layers || m->pos < 0 || m->count < 0 ||
        m->count > d->context - m->pos)
        return error_set(e, ERR_DEVICE, "key/value rows %d+%d of layer %d lie outside the cache",
                         m->pos, m->count, m->layer);
    if (!(s = kv_state_reserve(d, m->session, m->pos + m->count, e)))
        return ERR_DEVICE;
    for (int t = m->pos; t < m->pos + m->count; t++) {
        for (int h = 0; h < hp->common.mixer.kv_heads; h++, data += key_row)
            key_lane(d, s, m->layer, h, t, data, m->write);
        for (int h = 0; h < hp->common.mixer.kv_heads; h++, data += d->value_row)
            value_row(d, value_at(d, s, m->layer, h, t), data, m->write);
    }
    return 0;
}
