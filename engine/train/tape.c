/* See tape.h. */
#include "engine/train/tape.h"

float *room_take(struct room *r, size_t floats)
{
    float *at = r->base ? r->base + r->used : NULL;

    r->used += (floats + 15) / 16 * 16;
    return at;
}

/* The most that any layer has. */
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
    t->dq = room_take(r, n * m->q);
    t->dk = room_take(r, n * m->k);
    t->dv = room_take(r, n * m->v);
    t->dout = room_take(r, n * m->out);
    t->dmid = room_take(r, n * h);
    t->dnormed = room_take(r, n * h);
    for (int i = 0; i < 4; i++) {
        t->u[i] = room_take(r, n * m->rank[i]);
        t->v_up[i] = room_take(r, n * m->rank[i]);
    }
}

static void lay_out_experts(struct tape *t, struct room *r, const struct most *m, size_t n,
                            size_t h)
{
    size_t routed = n * m->used, shared = n * m->shared, rows = routed + shared,
           wide = routed * m->routed_width + shared * m->shared_width;

    t->normed_mid = room_take(r, n * h);
    t->scores = room_take(r, n * m->experts);
    t->dscores = room_take(r, n * m->experts);
    t->shared = room_take(r, n);
    t->gathered = room_take(r, routed * h);
    t->rows = room_take(r, rows * h);
    t->gate = room_take(r, wide);
    t->up = room_take(r, wide);
    t->hidden = room_take(r, wide);
    t->dhidden = room_take(r, wide);
    for (int i = 0; i < 3; i++) {
        t->row_u[i] = room_take(r, rows * m->row_rank[i]);
        t->row_v[i] = room_take(r, rows * m->row_rank[i]);
    }
    t->dweights = room_take(r, rows);
    t->counts = room_take(r, rows);
    t->row_of = (int *)(void *)room_take(r, rows);
    t->token_of = (int *)(void *)room_take(r, rows);
    t->first = (int *)(void *)room_take(r, m->experts + 2);
    t->fans = (struct fan *)(void *)room_take(r, (m->experts + 1) * sizeof(struct fan) /
                                                     sizeof(float) + 1);
}

void tape_lay_out(struct pass *p, struct room *r, int n)
{
    const struct hparams *hp = &p->base->model->hp;
    size_t h = (size_t)hp->hidden, rows = (size_t)n;
    struct most m = {0};

    for (int l = 0; l < hp->n_layers; l++) {
        size_t used = (size_t)p->base->layers[l].shape->ffn.used;

        measure(&p->base->layers[l], &m);
        p->layers[l] = (struct layer_record){.x = room_take(r, rows * h),
                                             .experts = (int *)(void *)room_take(r, rows * used),
                                             .weights = room_take(r, rows * used)};
    }
    p->layers[hp->n_layers] = (struct layer_record){.x = room_take(r, rows * h)};
    lay_out_mixer(&p->tape, r, &m, rows, h);
    lay_out_experts(&p->tape, r, &m, rows, h);
}
