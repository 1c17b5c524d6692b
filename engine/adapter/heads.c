/* Heads of gated delta nets: llama.cpp's converter deals value heads out over the key heads
 * (conversion/qwen.py, _reorder_v_heads), or takes apart what a folder has key head by key head.
 * The inverse is engine/convert/export_order.c. See reading.h. */
#include "engine/adapter/reading.h"

static int64_t dealt(const struct head_order *o, int64_t i)
{
    int64_t in = i - o->first, head = in / o->dim;

    if (in < 0)
        return i;
    return o->first + (head % o->keys * o->each + head / o->keys) * o->dim + in % o->dim;
}

/* Row i of a key head's `rows` in the folder's group of them. */
static int64_t grouped(const struct head_order *o, int64_t i, int rows, int at)
{
    int64_t all = 2 * (o->key_dim + (int64_t)o->each * o->dim);

    return i / rows * all + at + i % rows;
}

static int64_t joint(const struct head_order *o, int64_t i)
{
    int64_t keys = (int64_t)o->keys * o->key_dim;

    if (i < keys)
        return grouped(o, i, o->key_dim, 0);
    if (i < 2 * keys)
        return grouped(o, i - keys, o->key_dim, o->key_dim);
    return grouped(o, i - 2 * keys, o->each * o->dim, 2 * o->key_dim);
}

int64_t head_order_at(const struct head_order *o, int64_t i)
{
    switch (o->kind) {
    case ORDER_DEALT: return dealt(o, i);
    case ORDER_JOINT: return joint(o, i);
    case ORDER_GATES: return grouped(o, i, o->each * o->dim, 2 * o->key_dim + o->each * o->dim);
    default: return i;
    }
}

void reading_heads(const struct reading *r, const struct mixer_shape *s, enum matrix_part part,
                   bool together, struct share *out)
{
    struct head_order o = {.kind = ORDER_DEALT,
                           .keys = s->kv_heads,
                           .each = s->heads / s->kv_heads,
                           .dim = s->value_dim,
                           .key_dim = s->key_dim};

    if (together) {
        o.kind = part == MATRIX_Z ? ORDER_GATES : ORDER_JOINT;
        out->rows = o;
        return;
    }
    if (!r->family->gguf_tiled)
        return;
    switch (part) {
    case MATRIX_IN:
        o.first = 2 * s->kv_heads * s->key_dim;
        out->rows = o;
        break;
    case MATRIX_Z: out->rows = o; break;
    case MATRIX_B:
    case MATRIX_A:
        o.dim = 1;
        out->rows = o;
        break;
    case MATRIX_O: out->cols = o; break;
    default: break;
    }
}
