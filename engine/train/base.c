/* See base.h. */
#include "engine/train/base.h"

#include "engine/base/mem.h"
#include "engine/layout/pack.h"
#include "engine/layout/quantize.h"
#include "engine/model/block.h"
#include "engine/model/family.h"
#include "engine/train/config.h"
#include "engine/train/wide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- supported layers ---- */

static const char *const families_known[] = {
    "phimoe", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "granitemoe", "llama", "qwen3", "gpt2"};

static int check_family(const struct model *m, struct error *e)
{
    char known[200] = "";

    for (size_t i = 0; i < sizeof families_known / sizeof *families_known; i++) {
        if (strcmp(m->family, families_known[i]) == 0)
            return 0;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 families_known[i]);
    }
    return error_set(e, ERR_MODEL, "models of the family %s are not trained; those of %s are",
                     m->family, known);
}

/* The part of a layer without a backward pass; NULL: none. */
static const char *missing(const struct layer_shape *s)
{
    const struct mixer_shape *m = &s->mixer;
    const struct ffn_shape *f = &s->ffn;
    const struct router_shape *r = &f->router;

    return m->kind != MIXER_ATTENTION ? "its mixer"
           : m->sinks || m->gated     ? "its attention's sinks or gates"
           : m->chunked               ? "its chunks of attention"
           : m->qk_norm_turned        ? "the place of its heads' norms"
           : m->scale_growth != 0.0f  ? "how its scores grow"
           : m->values_are_keys || m->value_norm || m->value_factor != 0.0f
               ? "how its values are made"
           : m->second_rope || m->rope == ROPE_PROPORTIONAL ? "its rotary embedding"
           : f->kind != FFN_ROUTED && f->kind != FFN_DENSE  ? "its feed-forward"
           : f->activation != ACTIVATION_SILU && f->activation != ACTIVATION_GELU_PLAIN
               ? "its activation"
           : f->experts && r->kind == ROUTER_SIGMOID ? "its router"
           : f->experts && (r->choice_bias || r->expert_scales || r->groups > 1 || r->early ||
                            r->on_input || r->identities || r->row)
               ? "its router"
           : !s->norms.before || s->norms.after          ? "its norms"
           : f->grouped                                  ? "its adjugate experts"
           : s->parallel || s->ffn.shared_factor != 0.0f ? "its parallel operators"
           : s->shortcut != SHORTCUT_NONE                ? "its shortcut"
           : s->scaled                                   ? "its scale"
           : s->weighted                                 ? "the weights of its stream"
                                                         : NULL;
}

static int check_layers(const struct model *m, struct error *e)
{
    const struct hparams *hp = &m->hp;

    for (int l = 0; l < hp->n_layers; l++) {
        const char *what = missing(hparams_layer(hp, l));

        if (what)
            return error_set(e, ERR_MODEL, "layer %d: %s has no backward pass: not trained", l,
                             what);
    }
    if (hp->streams || hp->laurel)
        return error_set(e, ERR_MODEL,
                         "the streams of this model have no backward pass: not trained");
    if (hp->logit_cap != 0.0f || hp->embedding_width || hp->embedding_normed)
        return error_set(e, ERR_MODEL, "%s of this model has no backward pass: not trained",
                         hp->logit_cap != 0.0f  ? "the cap of logits"
                         : hp->embedding_normed ? "the normed embedding"
                                                : "the projected embedding");
    return 0;
}

/* ---- matrices ---- */

static bool rounds_to(const struct base *b, enum dtype from, int cols)
{
    return b->type >= 0 && (enum dtype)b->type != from && b->type != DTYPE_F32 &&
           cols % dtype_info((enum dtype)b->type)->block == 0;
}

static int keep(struct base *b, void *data, size_t bytes, struct error *e)
{
    if (!data || !MEM_FIT(b->owned, b->n_owned + 1) || !MEM_FIT(b->owned_bytes, b->n_owned + 1)) {
        mem_pages_free(data, bytes);
        return error_set(e, ERR_MEMORY, "out of memory for the rounded weights");
    }
    b->owned[b->n_owned] = data;
    b->owned_bytes[b->n_owned++] = bytes;
    return 0;
}

static int round_matrix(struct base *b, struct linear *w, struct error *e)
{
    enum dtype to = (enum dtype)b->type;
    size_t bytes = dtype_row_bytes(to, w->cols);
    uint8_t *data = mem_pages((size_t)w->rows * bytes);
    float *row = mem_alloc((size_t)w->cols, sizeof *row);
    int rc = keep(b, data, (size_t)w->rows * bytes, e);

    if (rc == 0 && !row)
        rc = error_set(e, ERR_MEMORY, "out of memory for the rounded weights");
    for (int r = 0; r < w->rows && rc == 0; r++) {
        row_to_f32(w->type, w->data + (size_t)r * w->row_bytes, w->cols, row);
        quantise_row(to, row, NULL, w->cols, data + (size_t)r * bytes);
    }
    mem_free(row);
    if (rc == 0) {
        w->type = to;
        w->data = data;
        w->row_bytes = bytes;
    }
    return rc;
}

static int take(struct base *b, const struct matrix *m, struct linear *w, struct error *e)
{
    *w = (struct linear){.type = m->type,
                         .rows = m->rows,
                         .cols = m->cols,
                         .data = m->data,
                         .row_bytes = dtype_row_bytes(m->type, m->cols),
                         .bias = m->bias};
    if (!m->rows)
        return 0;
    if (b->type >= 0 && dtype_is_quantised(m->type) && (enum dtype)b->type != m->type)
        return error_set(e, ERR_USAGE,
                         "base: the weights are %s already; leave base away, or give the original "
                         "model",
                         dtype_info(m->type)->word);
    if (!row_readable(m->type) || m->order || m->width)
        return error_set(e, ERR_MODEL, "weights of the type %s are not trained on",
                         dtype_info(m->type)->word);
    if (rounds_to(b, m->type, m->cols)) {
        int rc = round_matrix(b, w, e);

        if (rc < 0)
            return rc;
    }
    b->bytes += (uint64_t)w->rows * w->row_bytes;
    return 0;
}

static int take_layer(struct base *b, int l, struct error *e)
{
    struct model *m = b->model;
    struct base_layer *to = &b->layers[l];
    const struct layer_weights *w = &m->layers[l];
    int n, rc;

    to->shape = hparams_layer(&m->hp, l);
    to->w = w;
    n = shape_experts(to->shape);
    if (!(to->experts = mem_alloc((size_t)(n > 0 ? n : 1), sizeof *to->experts)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of matrices");
    if ((rc = take(b, &w->q, &to->q, e)) < 0 || (rc = take(b, &w->k, &to->k, e)) < 0 ||
        (rc = take(b, &w->v, &to->v, e)) < 0 || (rc = take(b, &w->o, &to->o, e)) < 0)
        return rc;
    for (int x = 0; x < n; x++)
        if ((rc = take(b, &w->experts[x].gate, &to->experts[x][0], e)) < 0 ||
            (rc = take(b, &w->experts[x].up, &to->experts[x][1], e)) < 0 ||
            (rc = take(b, &w->experts[x].down, &to->experts[x][2], e)) < 0)
            return rc;
    return 0;
}

int base_of(struct base *b, struct model *m, int type, struct error *e)
{
    int rc;

    *b = (struct base){.model = m, .type = type};
    if ((rc = check_family(m, e)) < 0 || (rc = check_layers(m, e)) < 0)
        return rc;
    if (!(b->layers = mem_alloc((size_t)m->hp.n_layers, sizeof *b->layers)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of layers");
    for (int l = 0; l < m->hp.n_layers && rc == 0; l++)
        rc = take_layer(b, l, e);
    return rc < 0 ? rc : take(b, &m->head, &b->head, e);
}

int base_open(struct base *b, const char *path, int type, struct error *e)
{
    struct model *m;
    int rc = model_open_raw(&m, path, NULL, e);

    if (rc < 0) {
        *b = (struct base){0};
        return rc;
    }
    return base_of(b, m, type, e);
}

void base_release(struct base *b)
{
    for (int l = 0; b->layers && l < b->model->hp.n_layers; l++)
        mem_free(b->layers[l].experts);
    for (int i = 0; i < b->n_owned; i++)
        mem_pages_free(b->owned[i], b->owned_bytes[i]);
    mem_free(b->owned);
    mem_free(b->owned_bytes);
    mem_free(b->layers);
    *b = (struct base){0};
}

/* ---- reading ---- */

void base_embed(const struct base *b, int id, int position, float *out, float *room)
{
    const struct model *m = b->model;
    const struct tensor_view *t = &m->embeddings, *p = &m->positions;
    int n = m->hp.hidden;

    row_to_f32(t->type, (const uint8_t *)t->data + (size_t)id * dtype_row_bytes(t->type, n), n,
               out);
    if (rounds_to(b, t->type, n)) {
        quantise_row((enum dtype)b->type, out, NULL, n, room);
        row_to_f32((enum dtype)b->type, room, n, out);
    }
    for (int i = 0; i < n && m->hp.embedding_scale != 0.0f; i++)
        out[i] *= m->hp.embedding_scale;
    if (!p->data)
        return;
    row_to_f32(p->type,
               (const uint8_t *)p->data +
                   (size_t)(position + m->hp.position_offset) * dtype_row_bytes(p->type, n),
               n, room);
    for (int i = 0; i < n; i++)
        out[i] += room[i];
}

const float *linear_panel(const struct linear *w, int r, int n, int c, int count, float *room,
                          ptrdiff_t *ld)
{
    const struct dtype_info *t = dtype_info(w->type);
    const uint8_t *from = w->data + (size_t)r * w->row_bytes +
                          (size_t)(c / t->block) * (size_t)t->bytes;

    if (w->type == DTYPE_F32 && ((uintptr_t)from & 3) == 0) {
        *ld = w->cols;
        return (const float *)(const void *)from;
    }
    dequantise_rows(w->type, from, w->row_bytes, n, count, room);
    *ld = count;
    return room;
}

struct linear *base_linear(struct base *b, struct block_id id, enum matrix_part part)
{
    struct base_layer *l = &b->layers[id.layer];

    if (id.kind == BLOCK_HEAD)
        return part == MATRIX_HEAD ? &b->head : NULL;
    switch (part) {
    case MATRIX_Q: return &l->q;
    case MATRIX_K: return &l->k;
    case MATRIX_V: return &l->v;
    case MATRIX_O: return &l->o;
    case MATRIX_GATE: return &l->experts[id.expert][0];
    case MATRIX_UP: return &l->experts[id.expert][1];
    case MATRIX_DOWN: return &l->experts[id.expert][2];
    default: return NULL;
    }
}
