/* See export_order.h. */
#include "engine/convert/export_order.h"

/* Size of a head whose rows must be reordered: RoPE rotates its two halves in the folder's code,
 * and pairs of neighbours in GGUF's readers. 0: no reordering. Heads without RoPE are reordered
 * as the family's others are, as by llama.cpp's converter (conversion/llama.py, permute). */
static int turned_head(const struct export *x, struct block_id id, enum matrix_part part)
{
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, id.layer)->mixer;

    return id.kind == BLOCK_ATTENTION && (part == MATRIX_Q || part == MATRIX_K) &&
                   s->kind == MIXER_ATTENTION && x->family->gguf_rope == ROPE_PAIRS &&
                   (s->rope == ROPE_HALVES ||
                    (s->rope == ROPE_NONE && x->family->shape.mixer.rope != ROPE_PAIRS))
               ? s->key_dim
               : 0;
}

static int turned_row(int row, int head)
{
    int in = row % head;

    return row - in + in % 2 * (head / 2) + in / 2;
}

bool export_heads_dealt(const struct family *family, const struct mixer_shape *s)
{
    return s->kind == MIXER_DELTA_NET && family->gguf_tiled && !s->tiled && s->heads != s->kv_heads;
}

int export_dealt_head(const struct mixer_shape *s, int head)
{
    return head % s->kv_heads * (s->heads / s->kv_heads) + head / s->kv_heads;
}

static int *turned_rows(struct export *x, int rows, int head)
{
    int *out = export_keep(x, (size_t)rows * sizeof *out);

    for (int i = 0; out && i < rows; i++)
        out[i] = turned_row(i, head);
    return out;
}

/* The heads' rows come after `first` others. */
static int *dealt_rows(struct export *x, const struct mixer_shape *s, int first, int dim)
{
    int n = s->heads * dim, *out = export_keep(x, (size_t)(first + n) * sizeof *out);

    for (int i = 0; out && i < first; i++)
        out[i] = i;
    for (int i = 0; out && i < n; i++)
        out[first + i] = first + export_dealt_head(s, i / dim) * dim + i % dim;
    return out;
}

static int dealt_order(struct export *x, const struct mixer_shape *s, enum matrix_part part,
                       struct export_order *out)
{
    switch (part) {
    case MATRIX_IN: out->rows = dealt_rows(x, s, 2 * s->kv_heads * s->key_dim, s->value_dim); break;
    case MATRIX_Z: out->rows = dealt_rows(x, s, 0, s->value_dim); break;
    case MATRIX_B:
    case MATRIX_A: out->rows = dealt_rows(x, s, 0, 1); break;
    case MATRIX_O:
        out->columns = dealt_rows(x, s, 0, 1);
        out->each = s->value_dim;
        break;
    default: return 0;
    }
    return out->rows || out->columns ? 0 : -1;
}

int export_order_of(struct export *x, struct block_id id, enum matrix_part part,
                    struct export_order *out)
{
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, id.layer)->mixer;
    int head = id.kind == BLOCK_HEAD ? 0 : turned_head(x, id, part);

    *out = (struct export_order){NULL, NULL, 0};
    if (head)
        out->rows = turned_rows(x, (part == MATRIX_Q ? s->heads : s->kv_heads) * head, head);
    else if (id.kind == BLOCK_ATTENTION && export_heads_dealt(x->family, s))
        return dealt_order(x, s, part, out);
    return head && !out->rows ? -1 : 0;
}

int export_order_joint(struct export *x, const struct mixer_shape *s, bool gates,
                       struct export_order *out)
{
    int values = s->heads / s->kv_heads * s->value_dim, keys = s->key_dim,
        all = 2 * (keys + values), n = 0,
        *rows = export_keep(x, (size_t)(s->kv_heads * all) * sizeof *rows);
    const struct {
        int first, count;
    } parts[] = {{0, keys}, {keys, keys}, {2 * keys, values}, {2 * keys + values, values}};

    for (int p = gates ? 3 : 0; rows && p < (gates ? 4 : 3); p++)
        for (int head = 0; head < s->kv_heads; head++)
            for (int i = 0; i < parts[p].count; i++)
                rows[n++] = head * all + parts[p].first + i;
    *out = (struct export_order){rows, NULL, 0};
    return rows ? n : -1;
}

const float *export_order_vector(struct export *x, const struct export_order *o, const float *v,
                                 int n)
{
    float *out = o->rows ? export_keep(x, (size_t)n * sizeof *out) : NULL;

    if (!o->rows)
        return v;
    for (int i = 0; out && i < n; i++)
        out[i] = v[o->rows[i]];
    return out;
}
