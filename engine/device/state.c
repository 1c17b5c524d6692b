/* See state.h. Widths after the papers cited in shape.h; of a convolution all taps but the newest
 * are kept. */
#include "engine/device/state.h"

#include "engine/device/numerics.h"

static size_t values_of(const struct mixer_shape *m)
{
    return (size_t)m->heads * (size_t)shape_value_dim(m);
}

static size_t floats(size_t n)
{
    return n * sizeof(float);
}

/* Convolution state for this many channels. */
static size_t convolution(const struct mixer_shape *m, size_t channels)
{
    return floats(channels * (size_t)(m->taps > 1 ? m->taps - 1 : 0));
}

static struct state_size rows(const struct mixer_shape *m, int heads, int key_dim, int value_dim,
                              enum kv_type k, enum kv_type v)
{
    return (struct state_size){.heads = heads,
                               .key_dim = key_dim,
                               .value_dim = value_dim,
                               .token_bytes = kv_type_bytes(k, heads * key_dim) +
                                              kv_type_bytes(v, heads * value_dim),
                               .ring = shape_ring(m)};
}

struct state_size state_size(const struct mixer_shape *m, enum kv_type k, enum kv_type v)
{
    size_t values = values_of(m), keys = (size_t)m->kv_heads * (size_t)m->key_dim;
    struct state_size none = {0};

    switch (m->kind) {
    case MIXER_ATTENTION:
        return m->keys_of ? none
                          : rows(m, m->kv_heads + (m->index_heads > 0), m->key_dim,
                                 shape_value_dim(m), k, v);
    case MIXER_MLA:
        return rows(m, 1, m->kv_rank + m->rope_dims, m->index_heads ? m->index_dim : 0, k, v);
    case MIXER_COMPRESSED: /* a token's own row, and that of the block that it is the last of */
        return rows(m, 1, m->key_dim * (m->block ? 2 : 1),
                    2 * (shape_compressed(m) + shape_index_compressed(m)) +
                        (shape_index_compressed(m) ? m->index_dim : 0),
                    k, v);
    case MIXER_CONVOLVED: {
        struct state_size s = rows(m, m->kv_heads, m->key_dim, shape_value_dim(m), k, v);

        s.fixed_bytes = floats((size_t)shape_taps_before(m) * (size_t)shape_channels(m) +
                               (size_t)shape_half_values(m));
        return s;
    }
    case MIXER_SHORT_CONVOLUTION: return (struct state_size){.fixed_bytes = convolution(m, values)};
    case MIXER_DELTA_NET:
    case MIXER_KIMI_DELTA:
    case MIXER_LIGHTNING:
        return (struct state_size){.fixed_bytes = floats(values * (size_t)m->key_dim) +
                                                  convolution(m, values + 2 * keys) +
                                                  floats((size_t)ngram_state(&m->ngrams))};
    case MIXER_MAMBA1:
        return (struct state_size){.fixed_bytes = floats(values * (size_t)m->state) +
                                                  convolution(m, values)};
    case MIXER_MAMBA2:
        return (struct state_size){
            .fixed_bytes = floats(values * (size_t)m->state) +
                           convolution(m, values + 2 * (size_t)m->groups * (size_t)m->state)};
    case MIXER_NONE:
    case MIXER_KINDS: break;
    }
    return none;
}

static int whole(int n, int of)
{
    return (n + of - 1) / of * of;
}

/* For a layer with a window. */
static int ring_room(const struct mixer_shape *m, const struct state_config *c)
{
    return whole(shape_ring(m) + c->rows - 1, NUM_CHUNK);
}

bool state_is_ring(const struct mixer_shape *m, const struct state_config *c)
{
    return shape_ring(m) > 0 && !m->keys_of && m->kind != MIXER_CONVOLVED &&
           ring_room(m, c) < c->context &&
           2 * STATE_COPIES_LEAST * (shape_ring(m) - 1) < c->context - ring_room(m, c);
}

int state_room(const struct mixer_shape *m, const struct state_config *c)
{
    return state_is_ring(m, c) ? ring_room(m, c) : whole(c->context, NUM_LANES);
}

size_t state_copy_bytes(const struct mixer_shape *m, const struct state_config *c)
{
    struct state_size s = state_size(m, c->k, c->v);

    return s.fixed_bytes + (state_is_ring(m, c) ? s.token_bytes * (size_t)(shape_ring(m) - 1) : 0);
}

/* The window's rows, the blocks' that are seen, and all of the indexer's. */
static uint64_t compressed_reads(const struct mixer_shape *m, enum kv_type k, enum kv_type v,
                                 int seen, int n_rows)
{
    int most = m->window + n_rows - 1, near = seen < most ? seen : most,
        blocks = shape_blocks(m, seen - 1), far = shape_seen_blocks(m, seen - 1) * n_rows;
    uint64_t keys = kv_type_bytes(k, m->key_dim) * (uint64_t)(near + (far < blocks ? far : blocks));

    return seen <= 0 ? 0
                     : keys + (shape_index_compressed(m)
                                   ? kv_type_bytes(v, m->index_dim) * (uint64_t)blocks
                                   : 0);
}

uint64_t state_read_bytes(const struct hparams *hp, enum kv_type k, enum kv_type v, int seen,
                          int n_rows)
{
    uint64_t sum = 0;

    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;
        struct state_size s = state_size(m, k, v);
        int most = s.ring ? s.ring + n_rows - 1 : seen;

        if (m->kind == MIXER_COMPRESSED) {
            sum += compressed_reads(m, k, v, seen, n_rows);
            continue;
        }
        if (m->kind == MIXER_MLA && m->index_top && seen > m->index_top) { /* all its keys */
            sum += kv_type_bytes(v, s.value_dim) * (uint64_t)seen;
            most = m->index_top * n_rows;
            s.token_bytes -= kv_type_bytes(v, s.value_dim);
        }
        sum += s.fixed_bytes + s.token_bytes * (uint64_t)(seen < 0 ? 0 : seen < most ? seen : most);
    }
    return sum;
}

int state_not_blocks(const struct hparams *hp, enum kv_type k, enum kv_type v)
{
    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;
        struct state_size s = state_size(m, k, v);

        if (m->kind == MIXER_COMPRESSED) { /* rows of several parts, each of whole blocks */
            s.key_dim = m->key_dim;
            s.value_dim = !m->block                         ? 0
                          : m->key_dim % KV_Q8_0_BLOCK != 0 ? m->key_dim
                                                            : m->index_dim;
        }
        if (k == KV_Q8_0 && s.key_dim % KV_Q8_0_BLOCK)
            return s.key_dim;
        if (v == KV_Q8_0 && s.value_dim % KV_Q8_0_BLOCK)
            return s.value_dim;
    }
    return 0;
}
