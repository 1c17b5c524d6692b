/* See state.h. Widths after the papers that shape.h names; of a convolution all taps but the newest
 * are kept. */
#include "engine/device/state.h"

static size_t values_of(const struct mixer_shape *m)
{
    return (size_t)m->heads * (size_t)(m->value_dim ? m->value_dim : m->key_dim);
}

static size_t floats(size_t n)
{
    return n * sizeof(float);
}

/* What lies behind the newest token of this many channels. */
static size_t convolution(const struct mixer_shape *m, size_t channels)
{
    return floats(channels * (size_t)(m->taps > 1 ? m->taps - 1 : 0));
}

static struct state_size attention(const struct mixer_shape *m, enum kv_type k, enum kv_type v)
{
    int value_dim = m->value_dim ? m->value_dim : m->key_dim;

    return (struct state_size){.token_bytes = kv_type_bytes(k, m->kv_heads * m->key_dim) +
                                              kv_type_bytes(v, m->kv_heads * value_dim),
                               .ring = m->window};
}

struct state_size state_size(const struct mixer_shape *m, enum kv_type k, enum kv_type v)
{
    size_t values = values_of(m), keys = (size_t)m->kv_heads * (size_t)m->key_dim;
    struct state_size none = {0};

    switch (m->kind) {
    case MIXER_ATTENTION: return attention(m, k, v);
    case MIXER_MLA:
        return (struct state_size){.token_bytes = kv_type_bytes(k, m->kv_rank + m->rope_dims),
                                   .ring = m->window};
    case MIXER_SHORT_CONVOLUTION: return (struct state_size){.fixed_bytes = convolution(m, values)};
    case MIXER_DELTA_NET:
    case MIXER_KIMI_DELTA:
    case MIXER_LIGHTNING:
        return (struct state_size){.fixed_bytes = floats(values * (size_t)m->key_dim) +
                                                  convolution(m, values + 2 * keys)};
    case MIXER_MAMBA2:
        return (struct state_size){
            .fixed_bytes = floats(values * (size_t)m->state) +
                           convolution(m, values + 2 * (size_t)m->groups * (size_t)m->state)};
    case MIXER_NONE:
    case MIXER_KINDS: break;
    }
    return none;
}
