/* See export_list.h. */
#include "engine/convert/export_list.h"

#include "engine/base/mem.h"
#include "engine/convert/export_metadata.h"
#include "engine/convert/export_order.h"
#include "engine/convert/tensor_kind.h"
#include "engine/layout/pack.h"
#include "engine/model/block.h"
#include "engine/model/mix.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static struct part *new_part(struct export *x)
{
    struct part *p;

    if (!MEM_ROOM(x->parts, x->n_parts, x->room, 512))
        return NULL;
    p = &x->parts[x->n_parts++];
    *p = (struct part){.count = 1, .matrices = 1, .kind = -1};
    return p;
}

static bool is_recurrent(const struct export *x, int layer)
{
    return shape_recurrent(&hparams_layer(&x->m->hp, layer)->mixer);
}

static struct part *add_part(struct export *x, enum tensor_role role, int layer, bool bias)
{
    struct part *p = new_part(x);

    if (p)
        family_gguf_name(x->family, role, layer, is_recurrent(x, layer), bias, p->name,
                         sizeof p->name);
    return p;
}

static int kind_of(struct export *x, const char *tensor, enum dtype from, enum dtype to)
{
    struct export_report *r = x->report;
    const char *name = strncmp(tensor, "blk.", 4) == 0 && strchr(tensor + 4, '.')
                           ? strchr(tensor + 4, '.') + 1
                           : tensor;
    int n = (int)strcspn(name, ".");

    for (int i = 0; i < r->n_kinds; i++)
        if ((int)strlen(r->kinds[i].name) == n && strncmp(r->kinds[i].name, name, (size_t)n) == 0 &&
            r->kinds[i].from == from && r->kinds[i].to == to)
            return i;
    if (r->n_kinds == EXPORT_KINDS)
        return EXPORT_KINDS - 1;
    snprintf(r->kinds[r->n_kinds].name, sizeof r->kinds[0].name, "%.*s", n, name);
    r->kinds[r->n_kinds].from = from;
    r->kinds[r->n_kinds].to = to;
    return r->n_kinds++;
}

/* v of n_dims dimensions; NULL: not added. */
static int add_values(struct export *x, enum tensor_role role, int layer, bool bias, const float *v,
                      int n_dims, const int64_t *dims)
{
    struct part *p = v ? add_part(x, role, layer, bias) : NULL;
    size_t n = 1;

    if (!v)
        return 0;
    if (!p)
        return -1;
    for (int i = 0; i < n_dims; i++)
        n *= (size_t)(p->dims[i] = dims[i]);
    p->type = DTYPE_F32;
    p->copied = v;
    p->copied_bytes = n * sizeof *v;
    p->n_dims = n_dims;
    return 0;
}

static int add_vector(struct export *x, enum tensor_role role, int layer, bool bias, const float *v,
                      int64_t d0, int64_t d1)
{
    return add_values(x, role, layer, bias, v, d1 ? 2 : 1, (const int64_t[]){d0, d1});
}

/* The type requested for the head or the embeddings; NULL: none, or it is another tensor. */
static const enum dtype *asked_for(const struct export *x, enum tensor_role role)
{
    if (role == TENSOR_EMBEDDINGS && x->o->embeddings)
        return x->o->embeddings;
    return role == TENSOR_HEAD || (role == TENSOR_EMBEDDINGS && x->m->hp.tied_embeddings)
               ? x->o->head
               : NULL;
}

/* The type a tensor of this name and role gets: an override's, or the mix's. */
static enum dtype type_of(const struct export *x, const char *name, enum tensor_role role,
                          int layer, int cols)
{
    const struct mix mix = {x->o->type->base, x->o->type->size, x->importance != NULL};
    const enum dtype *asked = asked_for(x, role);

    if (asked)
        return mix_fallback(*asked, cols);
    for (int i = 0; i < x->o->n_overrides; i++) {
        pcre2_match_data *found = pcre2_match_data_create(1, NULL);
        bool fits = found && pcre2_match(x->patterns[i], (PCRE2_SPTR)name, strlen(name), 0, 0,
                                         found, NULL) >= 0;

        pcre2_match_data_free(found);
        if (fits)
            return mix_fallback(x->o->overrides[i].type, cols);
    }
    return mix_type(mix, &x->trunk->hp, role, layer, cols);
}

static void add_rounding(struct export *x, struct part *p, enum tensor_role role, int layer,
                         const struct matrix *m)
{
    const struct tensor_view written = {.name = p->name, .n_dims = p->n_dims};
    int unused;

    if (is_recurrent(x, layer) || x->family->is_mtp)
        role = tensor_kind_role(p->name, &unused); /* as a quantiser of the file sees it */
    p->type = type_of(x, p->name, role, layer + x->family->first_layer, m->cols);
    if (dtype_is_quantised(x->o->type->base) && !tensor_kind_rounded(&written))
        p->type = m->type;
    p->matrix = m;
    p->kind = kind_of(x, p->name, m->type, p->type);
    x->total += (uint64_t)p->count * (uint64_t)m->rows * (uint64_t)m->cols;
}

static int add_matrix(struct export *x, enum tensor_role role, int layer, const struct matrix *m,
                      int count, size_t stride)
{
    struct part *p = add_part(x, role, layer, false);

    if (!p)
        return -1;
    p->count = p->matrices = count;
    p->rows = m->rows;
    p->stride = stride;
    p->n_dims = stride ? 3 : 2;
    p->dims[0] = stride ? count : m->rows;
    p->dims[1] = stride ? m->rows : m->cols;
    p->dims[2] = m->cols;
    add_rounding(x, p, role, layer, m);
    return 0;
}

static int add_norm(struct export *x, enum tensor_role role, int layer,
                    const struct norm_weights *n)
{
    return add_vector(x, role, layer, false, n->weight, x->m->hp.hidden, 0) ||
           add_vector(x, role, layer, true, n->bias, x->m->hp.hidden, 0);
}

enum tensor_role export_role_of(const struct model *m, struct block_id id, enum matrix_part part)
{
    static const enum tensor_role roles[MATRIX_PARTS] = {
        [MATRIX_Q] = TENSOR_Q,
        [MATRIX_K] = TENSOR_K,
        [MATRIX_V] = TENSOR_V,
        [MATRIX_O] = TENSOR_O,
        [MATRIX_GATE] = TENSOR_GATES,
        [MATRIX_UP] = TENSOR_UPS,
        [MATRIX_DOWN] = TENSOR_DOWNS,
        [MATRIX_HEAD] = TENSOR_HEAD,
        [MATRIX_Q_A] = TENSOR_Q_A,
        [MATRIX_KV_A] = TENSOR_KV_A,
        [MATRIX_K_B] = TENSOR_K_B,
        [MATRIX_V_B] = TENSOR_V_B,
        [MATRIX_INDEX_Q] = TENSOR_INDEX_Q,
        [MATRIX_INDEX_K] = TENSOR_INDEX_K,
        [MATRIX_INDEX_WEIGHTS] = TENSOR_INDEX_WEIGHTS,
        [MATRIX_INDEX_GATE] = TENSOR_INDEX_GATE,
        [MATRIX_COMPRESS_KEYS] = TENSOR_COMPRESS_KEYS,
        [MATRIX_COMPRESS_GATES] = TENSOR_COMPRESS_GATES,
        [MATRIX_O_A] = TENSOR_O_A,
        [MATRIX_IN] = TENSOR_MIX_IN,
        [MATRIX_Z] = TENSOR_MIX_Z,
        [MATRIX_B] = TENSOR_MIX_B,
        [MATRIX_A] = TENSOR_MIX_A,
        [MATRIX_JOIN] = TENSOR_MTP_JOIN,
        [MATRIX_INPUT_GATE] = TENSOR_INPUT_GATE,
        [MATRIX_INPUT_OUT] = TENSOR_INPUT_OUT,
        [MATRIX_INPUT_PROJECT] = TENSOR_INPUT_PROJECT,
        [MATRIX_LAUREL_IN] = TENSOR_LAUREL_IN,
        [MATRIX_LAUREL_OUT] = TENSOR_LAUREL_OUT,
        [MATRIX_V_BEFORE] = TENSOR_V_BEFORE,
        [MATRIX_NGRAM_KEY] = TENSOR_NGRAM_KEY,
        [MATRIX_NGRAM_VALUE] = TENSOR_NGRAM_VALUE,
        [MATRIX_STREAM_IN] = TENSOR_STREAM_IN,
        [MATRIX_STREAM_OUT] = TENSOR_STREAM_OUT,
        [MATRIX_HYPER_MIXER_DOWN] = TENSOR_HYPER_MIXER_DOWN,
        [MATRIX_HYPER_MIXER_UP] = TENSOR_HYPER_MIXER_UP,
        [MATRIX_HYPER_MIXER_MIX] = TENSOR_HYPER_MIXER_MIX,
        [MATRIX_HYPER_FFN_DOWN] = TENSOR_HYPER_FFN_DOWN,
        [MATRIX_HYPER_FFN_UP] = TENSOR_HYPER_FFN_UP,
        [MATRIX_HYPER_FFN_MIX] = TENSOR_HYPER_FFN_MIX,
        [MATRIX_HYPER_END_DOWN] = TENSOR_HYPER_END_DOWN,
        [MATRIX_HYPER_END_UP] = TENSOR_HYPER_END_UP,
        [MATRIX_HYPER_END_MIX] = TENSOR_HYPER_END_MIX,
        [MATRIX_Z_IN] = TENSOR_MIX_Z_IN,
        [MATRIX_A_IN] = TENSOR_MIX_A_IN,
    };
    const struct ffn_shape *s = &hparams_layer(&m->hp, id.layer)->ffn;
    const struct mixer_shape *mixer = &hparams_layer(&m->hp, id.layer)->mixer;
    bool dense = s->kind == FFN_DENSE;

    if (m->mtp.join.rows && part >= MATRIX_HYPER_END_DOWN && part <= MATRIX_HYPER_END_MIX)
        return (enum tensor_role)(roles[part] - TENSOR_HYPER_END_NORM + TENSOR_MTP_END_NORM);
    if (part == MATRIX_Q && (mixer->kind == MIXER_MLA || mixer->kind == MIXER_COMPRESSED) &&
        mixer->q_rank)
        return TENSOR_Q_B;
    if (id.kind == BLOCK_EXPERT && s->grouped && id.expert >= s->experts)
        return part == MATRIX_GATE ? TENSOR_ADJUGATE_GATE
               : part == MATRIX_UP ? TENSOR_ADJUGATE_UP
                                   : TENSOR_ADJUGATE_DOWN;
    if (id.kind == BLOCK_EXPERT && id.expert == s->experts)
        return part == MATRIX_GATE ? (dense ? TENSOR_DENSE_GATE : TENSOR_SHARED_GATE)
               : part == MATRIX_UP ? (dense ? TENSOR_DENSE_UP : TENSOR_SHARED_UP)
                                   : (dense ? TENSOR_DENSE_DOWN : TENSOR_SHARED_DOWN);
    return roles[part];
}

/* The same vector of every expert, stacked: `first` belongs to the first one. */
static const float *stacked_vector(struct export *x, const struct matrix *first, int experts)
{
    size_t rows = (size_t)first->rows;
    float *out = export_keep(x, (size_t)experts * rows * sizeof *out);

    for (int i = 0; out && i < experts; i++) {
        const struct matrix *m = (const void *)((const char *)first +
                                                (size_t)i * sizeof(struct expert_weights));

        memcpy(out + (size_t)i * rows, m->bias, rows * sizeof *out);
    }
    return out;
}

/* Makes the stacked matrices of all heads a tensor of three dimensions, as in GGUF: the last
 * part. */
static void split_heads(struct export *x, int heads)
{
    struct part *p = &x->parts[x->n_parts - 1];

    p->matrices = heads;
    p->rows /= heads;
    p->n_dims = 3;
    p->dims[2] = p->dims[1];
    p->dims[1] = p->rows;
    p->dims[0] = heads;
}

/* A part of a block and its bias, or those of `experts` blocks from this one on. */
static int add_one(struct export *x, struct block_id id, const struct block_matrix *b, int experts,
                   size_t stride)
{
    enum tensor_role role = export_role_of(x->m, id, b->part);
    const float *bias = b->w->bias;
    int rows = b->w->rows;
    struct export_order order;

    if (export_order_of(x, id, b->part, &order) < 0 ||
        (bias && !stride && !(bias = export_order_vector(x, &order, bias, rows))) ||
        (bias && stride && !(bias = stacked_vector(x, b->w, experts))) ||
        add_matrix(x, role, id.layer, b->w, experts, stride))
        return -1;
    x->parts[x->n_parts - 1].order = order;
    if (add_vector(x, role, id.layer, true, bias, stride ? experts : rows, stride ? rows : 0))
        return -1;
    if (role == TENSOR_K_B || role == TENSOR_V_B)
        split_heads(x, hparams_layer(&x->m->hp, id.layer)->mixer.heads);
    return 0;
}

/* q, k, v and the gates of a delta net with a single matrix for them, a key head at a time. */
static int add_joint(struct export *x, int layer, const struct matrix *m)
{
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, layer)->mixer;

    for (int gates = 0; gates < 2; gates++) {
        struct export_order order;
        int rows = export_order_joint(x, s, gates, &order);
        struct part *p;

        if (rows < 0 || add_matrix(x, gates ? TENSOR_MIX_Z : TENSOR_MIX_IN, layer, m, 1, 0))
            return -1;
        p = &x->parts[x->n_parts - 1];
        p->order = order;
        p->rows = rows;
        p->dims[0] = rows;
        x->total -= (uint64_t)(m->rows - rows) * (uint64_t)m->cols;
    }
    return 0;
}

static bool is_joint(const struct export *x, struct block_id id, enum matrix_part part)
{
    return part == MATRIX_IN && hparams_layer(&x->m->hp, id.layer)->mixer.kind == MIXER_DELTA_NET &&
           !x->m->layers[id.layer].z.bytes;
}

/* Gates and ups of routed experts as one tensor. */
static int add_fused(struct export *x, struct block_id id, const struct matrix *gate, int experts)
{
    struct part *p;

    if (add_matrix(x, TENSOR_GATE_UPS, id.layer, gate, 2 * experts, sizeof(struct expert_weights)))
        return -1;
    p = &x->parts[x->n_parts - 1];
    p->paired = true;
    p->matrices = experts;
    p->rows = 2 * gate->rows;
    p->dims[0] = experts;
    p->dims[1] = p->rows;
    return 0;
}

/* q, k and v, which are adjacent in struct layer_weights, as one tensor. */
static int add_qkv(struct export *x, int layer)
{
    const struct layer_weights *w = &x->m->layers[layer];
    const struct matrix *each[] = {&w->q, &w->k, &w->v};
    int rows = w->q.rows + w->k.rows + w->v.rows, at = 0;
    float *bias = w->q.bias ? export_keep(x, (size_t)rows * sizeof *bias) : NULL;
    struct part *p;

    if ((w->q.bias && !bias) || add_matrix(x, TENSOR_QKV, layer, &w->q, 3, 0))
        return -1;
    p = &x->parts[x->n_parts - 1];
    p->stride = sizeof w->q;
    p->matrices = 1;
    p->rows = rows;
    p->dims[0] = rows;
    x->total -= (uint64_t)(3 * w->q.rows - rows) * (uint64_t)w->q.cols;
    for (int i = 0; bias && i < 3; at += each[i++]->rows)
        memcpy(bias + at, each[i]->bias, (size_t)each[i]->rows * sizeof *bias);
    return add_vector(x, TENSOR_QKV, layer, true, bias, rows, 0);
}

static bool is_qkv(const struct export *x, struct block_id id, enum matrix_part part)
{
    return x->family->gguf_qkv && id.kind == BLOCK_ATTENTION && part <= MATRIX_V;
}

/* Gate and up of an expert that is always used, of a family that has no GGUF name for either. */
static bool is_gate_up(const struct export *x, struct block_id id, enum matrix_part part)
{
    char name[160];

    if (id.kind != BLOCK_EXPERT || part > MATRIX_UP || part < MATRIX_GATE ||
        hparams_layer(&x->m->hp, id.layer)->ffn.grouped ||
        id.expert != hparams_layer(&x->m->hp, id.layer)->ffn.experts)
        return false;
    family_gguf_name(x->family, export_role_of(x->m, id, MATRIX_UP), id.layer, false, false, name,
                     sizeof name);
    return !*name;
}

static bool is_stream_end(enum matrix_part part)
{
    return part == MATRIX_STREAM_IN || part == MATRIX_STREAM_OUT;
}

/* The matrices of all streams but the first as one tensor, with the first of them. */
static int add_stream_ends(struct export *x, const struct matrix *w, enum matrix_part part)
{
    const struct model *m = x->m;
    const struct matrix *first = part == MATRIX_STREAM_IN ? m->stream_in : m->stream_out;

    return w == first &&
           add_matrix(x, export_role_of(m, (struct block_id){BLOCK_ATTENTION, 0, 0}, part), 0, w,
                      m->hp.streams - 1, sizeof *w);
}

/* The two, which are adjacent in struct expert_weights, as one tensor. */
static int add_gate_up(struct export *x, int layer, const struct matrix *gate)
{
    struct part *p;

    if (add_matrix(x, TENSOR_SHARED_GATE_UP, layer, gate, 2, 0))
        return -1;
    p = &x->parts[x->n_parts - 1];
    p->stride = sizeof *gate;
    p->matrices = 1;
    p->rows = p->dims[0] = 2 * gate->rows;
    return 0;
}

/* The matrices of a block, or those of `experts` blocks from this one on stacked part by part. */
static int add_block(struct export *x, struct block_id id, int experts)
{
    struct block_matrix list[BLOCK_MATRICES];
    enum tensor_role up = export_role_of(x->m, id, MATRIX_UP);
    bool stacked = id.kind == BLOCK_EXPERT && (up == TENSOR_UPS || up == TENSOR_ADJUGATE_UP),
         fused = stacked && up == TENSOR_UPS && x->family->gguf_fused &&
                 x->m->layers[id.layer].experts->gate.bytes;
    size_t stride = stacked ? sizeof(struct expert_weights) : 0;
    int n = model_block_matrices(x->m, id, list), bad = 0;

    for (int i = 0; i < n && !bad; i++)
        bad = is_joint(x, id, list[i].part) ? add_joint(x, id.layer, list[i].w)
              : is_stream_end(list[i].part) ? add_stream_ends(x, list[i].w, list[i].part)
              : is_qkv(x, id, list[i].part) ? list[i].part == MATRIX_Q && add_qkv(x, id.layer)
              : is_gate_up(x, id, list[i].part)
                  ? list[i].part == MATRIX_GATE && add_gate_up(x, id.layer, list[i].w)
              : fused && list[i].part == MATRIX_GATE ? add_fused(x, id, list[i].w, experts)
              : fused && list[i].part == MATRIX_UP   ? 0
                                                     : add_one(x, id, &list[i], experts, stride);
    return bad;
}

/* A tensor of a GGUF file: rounded, or copied with its name, type and shape. */
static int add_tensor(struct export *x, const struct tensor_view *t, struct matrix *view,
                      struct error *e)
{
    struct part *p = new_part(x);
    int found;
    int64_t rows = 1;
    int layer;
    enum tensor_role role = tensor_kind_role(t->name, &layer);

    if (!p)
        return error_set(e, ERR_MEMORY, "out of memory for the list of tensors");
    if (strlen(t->name) >= sizeof p->name)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %.80s: GGUF files have names of at most 63 bytes",
                         weight_file_path(x->m->file), t->name);
    if (t->packed)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s is shown as %s, whose rows are not as in the file and are "
                         "not written again; quantise from a file of another type",
                         weight_file_path(x->m->file), t->name, dtype_info(t->type)->word);
    snprintf(p->name, sizeof p->name, "%s", t->name);
    p->n_dims = t->n_dims;
    memcpy(p->dims, t->dims, sizeof p->dims);
    for (int i = 0; i + 1 < t->n_dims; i++)
        rows *= t->dims[i];
    if (!tensor_kind_rounded(t) || !row_readable(t->type) || t->type == DTYPE_I32 ||
        t->type == DTYPE_I64 || rows > INT_MAX || t->dims[t->n_dims - 1] > INT_MAX) {
        p->type = t->type;
        p->copied = t->data;
        p->copied_bytes = t->bytes;
        return 0;
    }
    p->rows = (int)t->dims[t->n_dims - 2];
    p->matrices = (int)(rows / p->rows);
    *view = (struct matrix){
        .type = t->type, .rows = (int)rows, .cols = (int)t->dims[t->n_dims - 1], .data = t->data};
    add_rounding(x, p, role, layer, view);
    if (!x->adapters)
        return 0;
    if ((found = merge_tensor_find(x->m, t, &p->merge, e)) < 0)
        return found;
    p->merges = found;
    return 0;
}

int export_list_tensors(struct export *x, struct error *e)
{
    size_t n = weight_file_count(x->m->file);
    int rc = 0;

    if (!(x->views = mem_alloc(n ? n : 1, sizeof *x->views)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of tensors");
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_tensor(x, weight_file_at(x->m->file, i), &x->views[i], e);
    return rc;
}

static const float *twice_as_long(struct export *x, const float *factors, int n)
{
    float *out = export_keep(x, 2 * (size_t)n * sizeof *out);

    for (int i = 0; out && i < 2 * n; i++)
        out[i] = i < n ? factors[i] : 1.0f;
    return out;
}

/* A folder's rope factors, as the tensors that its family has for them in GGUF. */
static int add_rope(struct export *x)
{
    const struct hparams *hp = &x->m->hp;
    int n = hp->common.mixer.rope_dims / 2;
    char name[64];

    if (hp->original_context)
        return add_vector(x, TENSOR_ROPE_LONG, 0, false, hp->long_factor, n, 0) ||
               add_vector(x, TENSOR_ROPE_SHORT, 0, false, hp->short_factor, n, 0);
    family_gguf_name(x->family, TENSOR_ROPE_SHORT, 0, false, false, name, sizeof name);
    if (!export_rope_is_tensor(x->m) || !name[0])
        return 0;
    if (x->family->gguf_half_rope) /* the second half is of no layer that is scaled */
        return add_vector(x, TENSOR_ROPE_SHORT, 0, false, twice_as_long(x, hp->short_factor, n),
                          2 * n, 0);
    return add_vector(x, TENSOR_ROPE_SHORT, 0, false, hp->short_factor, n, 0);
}

#define NOT_TURNED 1e30f /* removes a frequency (llama.cpp, conversion/gemma.py) */

/* For layers that rotate a part of a head's pairs by frequencies of the whole head. */
static int add_second_rope(struct export *x)
{
    const struct hparams *hp = &x->m->hp;
    int n = hp->second_rope.of / 2;
    float *divisors;
    char name[64];

    family_gguf_name(x->family, TENSOR_ROPE_FREQS, 0, false, false, name, sizeof name);
    if (!hp->second_rope.dims || !name[0])
        return 0;
    if (!(divisors = export_keep(x, (size_t)n * sizeof *divisors)))
        return -1;
    for (int i = 0; i < n; i++)
        divisors[i] = i < hp->second_rope.dims / 2 ? 1.0f : NOT_TURNED;
    return add_vector(x, TENSOR_ROPE_FREQS, 0, false, divisors, n, 0);
}

/* Rows (taps, channels) of a model as (channels, taps), the channels in the order of the
 * projection's rows. */
static float *taps_of(struct export *x, const struct export_order *o, const float *conv, int taps,
                      int channels)
{
    float *out = export_keep(x, (size_t)taps * (size_t)channels * sizeof *out);

    for (int c = 0; out && c < channels; c++)
        for (int t = 0; t < taps; t++)
            out[c * taps + t] =
                conv[(size_t)t * (size_t)channels + (size_t)(o->rows ? o->rows[c] : c)];
    return out;
}

static int add_convolution(struct export *x, int l, const struct export_order *o)
{
    static const enum tensor_role apart[] = {TENSOR_CONV_Q, TENSOR_CONV_K, TENSOR_CONV_V};
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, l)->mixer;
    const struct recurrent_weights *w = &x->m->layers[l].recurrent;
    int n = w->conv[1] ? 3 : 1, channels = shape_channels(s) / n, bad = 0;
    const float *v;

    for (int i = 0; i < n && !bad; i++)
        bad = !(v = taps_of(x, o, w->conv[i], s->taps, channels)) ||
              (n == 1 ? add_vector(x, TENSOR_CONV, l, false, v, channels, s->taps)
                      : add_values(x, apart[i], l, false, v, 4,
                                   (const int64_t[]){1, channels, 1, s->taps}));
    if (bad || !w->conv_bias)
        return bad;
    return !(v = export_order_vector(x, o, w->conv_bias, channels)) ||
           add_vector(x, TENSOR_CONV, l, true, v, channels, 0);
}

/* Mamba 1's tensors besides its matrices and the convolution. */
static int add_state_space(struct export *x, int l, const struct export_order *o)
{
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, l)->mixer;
    const struct recurrent_weights *w = &x->m->layers[l].recurrent;
    const float *a = taps_of(x, o, w->a, s->state, s->value_dim);

    return !a || add_vector(x, TENSOR_DECAY, l, false, a, s->value_dim, s->state) ||
           add_vector(x, TENSOR_DT_BIAS, l, false, w->dt_bias, s->value_dim, 0) ||
           add_vector(x, TENSOR_SKIP, l, false, w->skip, s->value_dim, 0) ||
           add_vector(x, TENSOR_DT_NORM, l, false, w->dt_norm, s->a_rank, 0) ||
           add_vector(x, TENSOR_B_NORM, l, false, w->b_norm, s->state, 0) ||
           add_vector(x, TENSOR_C_NORM, l, false, w->c_norm, s->state, 0);
}

/* A recurrent mixer's tensors besides its matrices, in the shapes of llama.cpp's converter. */
static int add_recurrent(struct export *x, int l)
{
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, l)->mixer;
    const struct recurrent_weights *w = &x->m->layers[l].recurrent;
    const struct block_id id = {BLOCK_ATTENTION, l, 0};
    struct export_order channels, heads;
    bool mamba = s->kind == MIXER_MAMBA2, kimi = s->kind == MIXER_KIMI_DELTA;
    int inner = s->heads * s->value_dim;
    const float *a, *dt;
    float *minus = NULL;

    if (export_order_of(x, id, MATRIX_IN, &channels) || export_order_of(x, id, MATRIX_A, &heads) ||
        add_convolution(x, l, &channels))
        return -1;
    if (!w->a)
        return 0;
    if (s->kind == MIXER_MAMBA1)
        return add_state_space(x, l, &channels);
    if (!(a = export_order_vector(x, &heads, w->a, s->heads)) ||
        !(dt = export_order_vector(x, &heads, w->dt_bias, s->heads * (kimi ? s->key_dim : 1))))
        return -1;
    if (x->family->gguf_minus_decay && !(minus = export_keep(x, (size_t)s->heads * sizeof *minus)))
        return -1;
    for (int i = 0; i < s->heads && minus; i++)
        minus[i] = -a[i];
    a = minus ? minus : a;
    return add_vector(x, TENSOR_DECAY, l, false, a, s->heads, mamba || kimi) ||
           add_vector(x, TENSOR_DT_BIAS, l, false, dt, s->heads * (kimi ? s->key_dim : 1), 0) ||
           add_vector(x, TENSOR_SKIP, l, false, w->skip, s->heads, 1) ||
           add_vector(x, TENSOR_MIX_NORM, l, false, w->norm, mamba ? s->groups : s->value_dim,
                      mamba ? inner / s->groups : 0);
}

/* Convolutions and factors of convolved attention. The second one as in the folder: (channels,
 * key_dim, taps). */
static int add_convolved(struct export *x, int l)
{
    const struct mixer_shape *s = &hparams_layer(&x->m->hp, l)->mixer;
    const struct layer_weights *w = &x->m->layers[l];
    int64_t channels = shape_channels(s), dim = s->key_dim;
    const struct export_order none = {0};
    const float *taps = taps_of(x, &none, w->head_conv, s->head_taps, (int)(channels * dim));

    return !taps || add_convolution(x, l, &none) ||
           add_values(x, TENSOR_CONV_HEADS, l, false, taps, 3,
                      (const int64_t[]){channels, dim, s->head_taps}) ||
           add_vector(x, TENSOR_CONV_HEADS, l, true, w->head_conv_bias, channels, 0) ||
           add_vector(x, TENSOR_KEY_SCALE, l, false, w->key_scale, s->kv_heads, 0);
}

/* What a router makes its row of, and scores from it. */
static int add_router_row(struct export *x, int l)
{
    const struct router_weights *w = &x->m->layers[l].router_row;
    int64_t n = hparams_layer(&x->m->hp, l)->ffn.router.row;

    return add_vector(x, TENSOR_ROUTER_IN, l, false, w->in, n, x->m->hp.hidden) ||
           add_vector(x, TENSOR_ROUTER_IN, l, true, w->in_bias, n, 0) ||
           add_vector(x, TENSOR_ROUTER_CARRY, l, false, w->carry, n, 0) ||
           add_vector(x, TENSOR_ROUTER_ROW_NORM, l, false, w->norm, n, 0) ||
           add_vector(x, TENSOR_ROUTER_FIRST, l, false, w->first, n, n) ||
           add_vector(x, TENSOR_ROUTER_FIRST, l, true, w->first_bias, n, 0) ||
           add_vector(x, TENSOR_ROUTER_SECOND, l, false, w->second, n, n) ||
           add_vector(x, TENSOR_ROUTER_SECOND, l, true, w->second_bias, n, 0);
}

/* first: the first of four roles in the order of binding/ffn.c. */
static int add_residual(struct export *x, const struct residual_weights *w, int first, int l)
{
    const float *const all[] = {w->scale, w->shift, w->stream_scale, w->stream_shift};
    int bad = 0;

    for (int i = 0; i < 4 && !bad; i++)
        bad = add_vector(x, (enum tensor_role)(first + i), l, false, all[i], x->m->hp.hidden, 0);
    return bad;
}

/* A vector as in the folder: undoes the model's scaling. */
static const float *stored_vector(struct export *x, enum tensor_role role, int l, int n)
{
    const struct family *family;
    const struct tensor_view *t;
    struct error e = {0};
    float *out = NULL;

    if (family_of(&family, x->m->file, &e) == 0 &&
        (t = family_tensor(family, x->m->file, role, l, 0, false)) &&
        (out = export_keep(x, (size_t)n * sizeof *out)))
        row_to_f32(t->type, t->data, n, out);
    return out;
}

/* Norms and scales of a dense part parallel to routed experts. */
static int add_apart(struct export *x, int l)
{
    const struct layer_weights *w = &x->m->layers[l];
    const float *scale = w->router_norm.weight
                             ? stored_vector(x, TENSOR_ROUTER_NORM, l, x->m->hp.hidden)
                             : NULL;

    return (w->router_norm.weight && !scale) ||
           add_norm(x, TENSOR_ROUTED_NORM, l, &w->routed_norm) ||
           add_norm(x, TENSOR_ROUTED_AFTER, l, &w->routed_after) ||
           add_norm(x, TENSOR_SHARED_AFTER, l, &w->shared_after) ||
           add_vector(x, TENSOR_ROUTER_NORM, l, false, scale, x->m->hp.hidden, 0);
}

/* What hyper-connections have besides matrices in one place, whose first role is `role`. */
static int add_hyper(struct export *x, enum tensor_role role, int l, const struct hyper_weights *w)
{
    int64_t n = x->m->hp.streams, hidden = x->m->hp.hidden;

    return add_vector(x, role + HYPER_NORM, l, false, w->norm, n * hidden, 0) ||
           add_vector(x, role + HYPER_BASE, l, false, w->base, w->mix.rows, 0) ||
           add_vector(x, role + HYPER_SCALE, l, false, w->scale,
                      role == TENSOR_HYPER_END_NORM || role == TENSOR_MTP_END_NORM ? 1 : 3, 0);
}

/* What mixes the streams around a layer, and the norm behind its learned residual. */
static int add_streams(struct export *x, int l)
{
    const struct layer_weights *w = &x->m->layers[l];
    int64_t n = x->m->hp.streams, hidden = x->m->hp.hidden;

    if (hparams_hyper(&x->m->hp))
        return add_hyper(x, TENSOR_HYPER_MIXER_NORM, l, &w->hyper[0]) ||
               add_hyper(x, TENSOR_HYPER_FFN_NORM, l, &w->hyper[1]) ||
               (l == 0 &&
                add_hyper(x, x->family->is_mtp ? TENSOR_MTP_END_NORM : TENSOR_HYPER_END_NORM, 0,
                          &x->m->hyper_end));
    return add_norm(x, TENSOR_STREAM_NORM, l, &w->stream_norm) ||
           add_vector(x, TENSOR_STREAM_ROUTER, l, false, w->stream_router, n, hidden) ||
           add_vector(x, TENSOR_STREAM_PREDICT, l, false, w->stream_predict, n * n, n) ||
           add_vector(x, TENSOR_STREAM_CORRECT, l, false, w->stream_correct, n, n) ||
           add_vector(x, TENSOR_STREAM_SCALE, l, false, w->stream_scale, hidden, 0) ||
           add_norm(x, TENSOR_LAUREL_AFTER, l, &w->laurel_after);
}

/* Keys and values of a layer that reads another's, if its folder has some all the same: llama.cpp
 * wants them. */
static int add_unread(struct export *x, int l)
{
    static const enum tensor_role roles[] = {TENSOR_K, TENSOR_V};
    const struct family *family;
    const float *norm;
    struct error e = {0};

    if (!hparams_layer(&x->m->hp, l)->mixer.keys_of || family_of(&family, x->m->file, &e) < 0)
        return 0;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const struct tensor_view *t = family_tensor(family, x->m->file, roles[i], l, 0, false);
        struct matrix *m = t && t->n_dims == 2 ? export_keep(x, sizeof *m) : NULL;

        if (t && !m)
            return -1;
        if (!t)
            continue;
        *m = (struct matrix){.type = t->type,
                             .rows = (int)t->dims[0],
                             .cols = (int)t->dims[1],
                             .data = t->data,
                             .bytes = t->bytes};
        if (add_matrix(x, roles[i], l, m, 1, 0))
            return -1;
    }
    norm = stored_vector(x, TENSOR_K_NORM, l, hparams_layer(&x->m->hp, l)->mixer.key_dim);
    return add_vector(x, TENSOR_K_NORM, l, false, norm, hparams_layer(&x->m->hp, l)->mixer.key_dim,
                      0);
}

/* Whether norms of heads that the folder does not have (mixer_shape.q_norm_unsaid) are left out of
 * the file as well. */
static bool norms_unsaid(const struct export *x, int l)
{
    char name[128];

    family_gguf_name(x->family, TENSOR_Q_NORM, l, false, false, name, sizeof name);
    return !name[0] && hparams_layer(&x->m->hp, l)->mixer.q_norm_unsaid != 0.0f;
}

/* Which experts each token has, as llama.cpp's converter writes it. */
static int add_table(struct export *x, int l)
{
    const float *table = x->m->layers[l].token_experts;
    int used = hparams_layer(&x->m->hp, l)->ffn.used;
    size_t n = (size_t)x->m->hp.n_vocab * (size_t)used;
    int32_t *numbers = table ? export_keep(x, n * sizeof *numbers) : NULL;
    struct part *p = numbers ? add_part(x, TENSOR_TOKEN_EXPERTS, l, false) : NULL;

    if (!table)
        return 0;
    if (!p)
        return -1;
    for (size_t i = 0; i < n; i++)
        numbers[i] = (int32_t)table[i];
    p->type = DTYPE_I32;
    p->copied = numbers;
    p->copied_bytes = n * sizeof *numbers;
    p->n_dims = 2;
    p->dims[0] = x->m->hp.n_vocab;
    p->dims[1] = used;
    return 0;
}

static int add_compressors(struct export *x, int l)
{
    const struct layer_weights *w = &x->m->layers[l];
    const struct layer_shape *s = hparams_layer(&x->m->hp, l);

    return add_vector(x, TENSOR_COMPRESS_BIAS, l, false, w->compress_bias, s->mixer.block,
                      shape_compressed(&s->mixer)) ||
           add_vector(x, TENSOR_COMPRESS_NORM, l, false, w->compress_norm, s->mixer.key_dim, 0) ||
           add_vector(x, TENSOR_INDEX_BIAS, l, false, w->index_bias, s->mixer.block,
                      shape_index_compressed(&s->mixer)) ||
           add_table(x, l);
}

/* The table of a layer's n-grams, which llama.cpp's converter writes as one tensor. */
static int add_ngram_table(struct export *x, int l)
{
    const struct ngram_weights *w = &x->m->layers[l].ngrams;
    struct matrix *parts = export_keep(x, (size_t)w->n_parts * sizeof *parts);
    struct part *p;
    int64_t rows = 0;

    for (int i = 0; parts && i < w->n_parts; rows += parts[i++].rows)
        parts[i] = (struct matrix){.type = w->parts[i]->type,
                                   .rows = (int)w->parts[i]->dims[0],
                                   .cols = (int)w->parts[i]->dims[1],
                                   .data = w->parts[i]->data};
    if (!parts || add_matrix(x, TENSOR_NGRAM_TABLE, l, parts, w->n_parts, sizeof *parts))
        return -1;
    p = &x->parts[x->n_parts - 1];
    x->total -= (uint64_t)((int64_t)w->n_parts * parts->rows - rows) * (uint64_t)parts->cols;
    p->matrices = 1;
    p->rows = (int)rows;
    p->n_dims = 2;
    p->dims[0] = rows;
    p->dims[1] = parts->cols;
    return 0;
}

static int add_ngrams(struct export *x, int l)
{
    const struct ngram_shape *s = &hparams_layer(&x->m->hp, l)->mixer.ngrams;
    const struct ngram_weights *w = &x->m->layers[l].ngrams;
    const struct export_order none = {0};
    const float *conv = s->size ? taps_of(x, &none, w->conv, s->taps, s->channels) : NULL;

    if (!s->size)
        return 0;
    return !conv || add_ngram_table(x, l) ||
           add_vector(x, TENSOR_NGRAM_KEY_NORM, l, false, w->key_norm, s->channels, 0) ||
           add_vector(x, TENSOR_NGRAM_QUERY_NORM, l, false, w->query_norm, s->channels, 0) ||
           add_vector(x, TENSOR_NGRAM_CONV_NORM, l, false, w->conv_norm, s->channels, 0) ||
           add_vector(x, TENSOR_NGRAM_CONV, l, false, conv, s->channels, s->taps);
}

/* A layer's tensors besides its matrices. */
static int add_vectors(struct export *x, int l)
{
    const struct model *m = x->m;
    const struct layer_weights *w = &m->layers[l];
    const struct layer_shape *s = hparams_layer(&m->hp, l);
    int experts = s->ffn.experts, choices = shape_choices(&s->ffn), hidden = m->hp.hidden,
        cols = s->ffn.router.row ? s->ffn.router.row : hidden;
    bool latent = s->mixer.kind == MIXER_MLA || s->mixer.kind == MIXER_COMPRESSED,
         unsaid = norms_unsaid(x, l);

    return add_norm(x, TENSOR_ATTENTION_NORM, l, &w->attention_norm) ||
           (!s->parallel && add_norm(x, TENSOR_EXPERT_NORM, l, &w->expert_norm)) ||
           add_norm(x, TENSOR_ATTENTION_AFTER, l, &w->attention_after) ||
           add_norm(x, TENSOR_EXPERT_AFTER, l, &w->expert_after) || add_apart(x, l) ||
           add_norm(x, TENSOR_INPUT_AFTER, l, &w->input_after) ||
           (m->hp.streams && (add_streams(x, l) || add_unread(x, l))) ||
           add_vector(x, TENSOR_LAYER_SCALE, l, false, w->scale, 1, 0) ||
           add_vector(x, TENSOR_EXPERT_SCALE, l, false, w->expert_scale, experts, 0) ||
           (shape_recurrent(&s->mixer) && add_recurrent(x, l)) ||
           (s->mixer.kind == MIXER_CONVOLVED && add_convolved(x, l)) || add_ngrams(x, l) ||
           add_router_row(x, l) || add_residual(x, &w->mixed, TENSOR_MIXED_SCALE, l) ||
           add_residual(x, &w->combined, TENSOR_EXPERTS_SCALE, l) ||
           add_vector(x, latent ? TENSOR_Q_A_NORM : TENSOR_Q_NORM, l, false,
                      unsaid ? NULL : w->q_norm, (int64_t)model_qk_norm_values(m, l, true), 0) ||
           add_vector(x, latent ? TENSOR_KV_A_NORM : TENSOR_K_NORM, l, false,
                      unsaid ? NULL : w->k_norm, (int64_t)model_qk_norm_values(m, l, false), 0) ||
           add_vector(x, TENSOR_INDEX_NORM, l, false, w->index_norm, s->mixer.index_dim, 0) ||
           add_vector(x, TENSOR_INDEX_NORM, l, true, w->index_norm_bias, s->mixer.index_dim, 0) ||
           add_compressors(x, l) ||
           add_vector(x, TENSOR_INDEX_Q_NORM, l, false, w->index_q_norm, s->mixer.index_dim, 0) ||
           add_vector(x, TENSOR_SINKS, l, false, w->sinks, s->mixer.heads, 0) ||
           add_vector(x, TENSOR_HEADS_ROUTER, l, false, w->head_router, s->mixer.experts, hidden) ||
           add_vector(x, TENSOR_ROUTER, l, false, w->router, choices, cols) ||
           add_vector(x, TENSOR_ROUTER, l, true, w->score_bias, choices, 0) ||
           add_vector(x, TENSOR_ROUTER_BIAS, l, false, w->router_bias, choices, 0) ||
           add_vector(x, TENSOR_SHARED_ROUTER, l, false, w->shared_router, 1, hidden);
}

static int add_embeddings(struct export *x, enum tensor_role role, struct matrix *out)
{
    const struct model *m = x->m;

    *out = (struct matrix){.type = m->embeddings.type,
                           .rows = m->hp.n_vocab,
                           .cols = m->hp.hidden,
                           .data = m->embeddings.data};
    return add_matrix(x, role, 0, out, 1, 0);
}

/* Where inputs of single layers come from, but for their matrix. */
static int add_inputs(struct export *x, struct matrix *out)
{
    const struct model *m = x->m;
    int n = hparams_inputs(&m->hp);

    if (!n)
        return 0;
    *out = (struct matrix){.type = m->input_table.type,
                           .rows = (int)m->input_table.dims[0],
                           .cols = n,
                           .data = m->input_table.data};
    return add_matrix(x, TENSOR_INPUT_TABLE, 0, out, 1, 0) ||
           add_vector(x, TENSOR_INPUT_NORM, 0, false, m->input_norm, n / m->hp.n_layers, 0);
}

static int add_layers(struct export *x)
{
    int bad = 0;

    for (int l = 0; l < x->m->hp.n_layers && !bad; l++) {
        const struct ffn_shape *s = &hparams_layer(&x->m->hp, l)->ffn;

        bad = add_vectors(x, l) || add_block(x, (struct block_id){BLOCK_ATTENTION, l, 0}, 1) ||
              (s->experts && add_block(x, (struct block_id){BLOCK_EXPERT, l, 0}, s->experts)) ||
              (s->grouped &&
               add_block(x, (struct block_id){BLOCK_EXPERT, l, s->experts}, shape_further(s))) ||
              (s->shared && add_block(x, (struct block_id){BLOCK_EXPERT, l, s->experts}, 1));
    }
    return bad;
}

static bool has_own(const struct export *x, enum tensor_role role)
{
    return family_tensor(&x->mtp_read, x->m->file, role, 0, 0, false) != NULL;
}

/* The layer with the join, and the embeddings and head if the block has its own. */
static int add_own(struct export *x, struct matrix *embeddings)
{
    const struct model *m = x->m;

    return add_norm(x, TENSOR_MTP_EMBEDDING_NORM, 0, &m->mtp.embedding_norm) ||
           add_norm(x, TENSOR_MTP_HIDDEN_NORM, 0, &m->mtp.hidden_norm) ||
           (has_own(x, TENSOR_MTP_NORM) && add_norm(x, TENSOR_MTP_NORM, 0, &m->output_norm)) ||
           add_layers(x) ||
           (has_own(x, TENSOR_MTP_EMBEDDINGS) &&
            add_embeddings(x, TENSOR_MTP_EMBEDDINGS, embeddings)) ||
           (has_own(x, TENSOR_MTP_HEAD) && add_matrix(x, TENSOR_MTP_HEAD, 0, &m->head, 1, 0));
}

/* The MTP block is listed as the model it is opened as, with the number after the last layer. */
static int add_mtp(struct export *x, struct matrix *embeddings)
{
    const struct family *family = x->family;
    struct model *of = x->m;
    int bad;

    x->mtp_written = *family;
    x->mtp_written.is_mtp = true;
    x->mtp_written.first_layer = of->hp.n_layers;
    x->family = &x->mtp_written;
    x->m = x->mtp;
    bad = add_own(x, embeddings);
    x->m = of;
    x->family = family;
    return bad;
}

int export_list_parts(struct export *x, struct matrix embeddings[EXPORT_TABLES], struct error *e)
{
    const struct model *m = x->m;
    int bad;

    bad = add_embeddings(x, TENSOR_EMBEDDINGS, &embeddings[0]) || add_inputs(x, &embeddings[2]) ||
          add_rope(x) || add_second_rope(x) || add_layers(x) ||
          add_vector(x, TENSOR_EMBEDDINGS_SCALE, 0, false, m->embedding_scale, m->hp.hidden, 0) ||
          add_vector(x, TENSOR_EMBEDDINGS_SHIFT, 0, false, m->embedding_shift, m->hp.hidden, 0) ||
          add_norm(x, TENSOR_OUTPUT_NORM, 0, &m->output_norm) ||
          (!m->hp.tied_embeddings && add_block(x, (struct block_id){BLOCK_HEAD, 0, 0}, 1)) ||
          (x->mtp && add_mtp(x, &embeddings[1]));
    if (bad)
        return error_set(e, ERR_MEMORY, "out of memory for the list of tensors");
    for (int i = 0; i < x->n_parts; i++)
        if (!x->parts[i].name[0])
            return error_set(e, ERR_MODEL,
                             "%s: it has tensors or rope factors that GGUF files of the family %s "
                             "have no name for",
                             weight_file_path(m->file), x->family->name);
    return 0;
}

void export_list_release(struct export *x)
{
    export_keep_release(x);
    mem_free(x->views);
    mem_free(x->parts);
}
