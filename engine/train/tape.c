/* See tape.h. */
#include "engine/train/tape.h"

float *room_take(struct room *r, size_t floats)
{
    float *at = r->base ? r->base + r->used : NULL;

    r->used += (floats + 15) / 16 * 16;
    return at;
}

/* Maxima over all layers. */
struct most {
    size_t q, k, v, out, experts, used, routed_width, shared_width, shared;
    size_t rank[4], row_rank[3];
    bool normed;
};

static size_t larger(size_t a, int b)
{
    return a > (size_t)b ? a : (size_t)b;
}

static int rank_of(const struct linear *w)
{
    return w->rows && w->module ? w->module->rank : 0;
}

static void measure(const struct base_layer *l, struct most *m)
{
    const struct mixer_shape *s = &l->shape->mixer;
    const struct ffn_shape *f = &l->shape->ffn;
    const struct linear *const four[] = {&l->q, &l->k, &l->v, &l->o};

    m->q = larger(m->q, s->heads * s->key_dim);
    m->k = larger(m->k, s->kv_heads * s->key_dim);
    m->v = larger(m->v, s->kv_heads * shape_value_dim(s));
    m->out = larger(m->out, s->heads * shape_value_dim(s));
    m->experts = larger(m->experts, f->experts);
    m->used = larger(m->used, f->experts ? f->used : 0);
    m->shared = larger(m->shared, f->shared);
    m->routed_width = larger(m->routed_width, f->experts ? f->width : 0);
    m->shared_width = larger(m->shared_width, f->shared ? f->shared_width : 0);
    m->normed |= s->qk_norm != QK_NORM_NONE;
    for (int i = 0; i < 4; i++)
        m->rank[i] = larger(m->rank[i], rank_of(four[i]));
    for (int x = 0; x < shape_experts(l->shape); x++)
        for (int i = 0; i < 3; i++)
            m->row_rank[i] = larger(m->row_rank[i], rank_of(&l->experts[x][i]));
}

/* Values of a layer's first half needed by the backward pass, and of its second. */
static void lay_out_mixer(struct tape *t, struct room *r, const struct most *m, size_t n, size_t h)
{
    t->normed = room_take(r, n * h);
    t->q = room_take(r, n * m->q);
    t->k = room_take(r, n * m->k);
    t->v = room_take(r, n * m->v);
    t->q_raw = m->normed ? room_take(r, n * m->q) : NULL;
    t->k_raw = m->normed ? room_take(r, n * m->k) : NULL;
    t->out = room_take(r, n * m->out);
    t->mid = room_take(r, n * h);
    for (int i = 0; i < 4; i++)
        t->u[i] = room_take(r, n * m->rank[i]);
}

static size_t rows_of(const struct most *m, size_t n)
{
    return n * (m->used + m->shared);
}

static size_t wide_of(const struct most *m, size_t n)
{
    return n * (m->used * m->routed_width + m->shared * m->shared_width);
}

static void lay_out_experts(struct tape *t, struct room *r, const struct most *m, size_t n,
                            size_t h)
{
    size_t rows = rows_of(m, n), wide = wide_of(m, n);

    t->normed_mid = room_take(r, n * h);
    t->scores = room_take(r, n * m->experts);
    t->shared = room_take(r, n);
    t->gathered = room_take(r, n * m->used * h);
    t->gate = room_take(r, wide);
    t->up = room_take(r, wide);
    t->hidden = room_take(r, wide);
    for (int i = 0; i < 3; i++)
        t->row_u[i] = room_take(r, rows * m->row_rank[i]);
    t->counts = room_take(r, rows);
    t->row_of = (int *)(void *)room_take(r, rows);
    t->token_of = (int *)(void *)room_take(r, rows);
    t->first = (int *)(void *)room_take(r, m->experts + 2);
}

/* Gradients, and values used only within the next step of a layer. */
static void lay_out_flow(struct tape *t, struct room *r, const struct most *m, size_t n, size_t h)
{
    size_t rows = rows_of(m, n);

    t->dq = room_take(r, n * m->q);
    t->dk = room_take(r, n * m->k);
    t->dv = room_take(r, n * m->v);
    t->dout = room_take(r, n * m->out);
    t->dmid = room_take(r, n * h);
    t->dnormed = room_take(r, n * h);
    for (int i = 0; i < 4; i++)
        t->v_up[i] = room_take(r, n * m->rank[i]);
    t->rows = room_take(r, rows * h);
    t->dhidden = room_take(r, wide_of(m, n));
    for (int i = 0; i < 3; i++)
        t->row_v[i] = room_take(r, rows * m->row_rank[i]);
    t->dweights = room_take(r, rows);
    t->dscores = room_take(r, n * m->experts);
    t->fans = (struct fan *)(void *)room_take(r, (m->experts + 1) * sizeof(struct fan) /
                                                     sizeof(float) + 1);
}

static void lay_out_insides(struct tape *t, struct room *r, const struct most *m, size_t n,
                            size_t h)
{
    lay_out_mixer(t, r, m, n, h);
    lay_out_experts(t, r, m, n, h);
}

/* The last layer is the first in the backward pass: it owns the shared buffer then. Those before it
 * get their own, from the last on, as long as `bound` bytes suffice. */
static void keep_insides(struct pass *p, struct room *r, size_t n, size_t bound)
{
    size_t h = (size_t)p->base->model->hp.hidden, limit = r->used + bound / sizeof(float);
    int l = p->base->model->hp.n_layers - 1;

    p->layers[l].kept = true;
    while (--l >= 0) {
        struct most own = {0};
        struct room size = {0};
        struct tape none;

        measure(&p->base->layers[l], &own);
        lay_out_insides(&none, &size, &own, n, h);
        if (r->used + size.used > limit)
            return;
        lay_out_insides(&p->layers[l].tape, r, &own, n, h);
        p->layers[l].kept = true;
    }
}

void tape_lay_out(struct pass *p, struct room *r, int n, size_t bound)
{
    const struct hparams *hp = &p->base->model->hp;
    size_t h = (size_t)hp->hidden, rows = (size_t)n;
    struct most m = {0};
    struct tape shared;

    for (int l = 0; l < hp->n_layers; l++)
        measure(&p->base->layers[l], &m);
    lay_out_insides(&shared, r, &m, rows, h);
    lay_out_flow(&shared, r, &m, rows, h);
    for (int l = 0; l < hp->n_layers; l++) {
        size_t used = (size_t)p->base->layers[l].shape->ffn.used;

        p->layers[l] = (struct layer_record){.x = room_take(r, rows * h),
                                             .experts = (int *)(void *)room_take(r, rows * used),
                                             .weights = room_take(r, rows * used),
                                             .tape = shared};
    }
    p->layers[hp->n_layers] = (struct layer_record){.x = room_take(r, rows * h)};
    keep_insides(p, r, rows, bound);
}
