/* The attention half of a layer: norm, q k v, their norms and rotation, attention, o, residual. See
 * layer.h. */
#include "engine/train/attention.h"
#include "engine/train/layer.h"
#include "engine/train/norm.h"

#include <string.h>

/* Per-task data of a layer. */
struct work {
    const struct pass *p;
    const struct base_layer *layer;
    const struct layer_record *record;
    float *d;
};

static int end_of(const struct pass *p, int task)
{
    return (task + 1) * TASK_ROWS < p->n ? (task + 1) * TASK_ROWS : p->n;
}

static void norm_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct norms_shape *s = &w->layer->shape->norms;
    const struct norm_weights *n = &w->layer->w->attention_norm;
    size_t h = (size_t)w->p->base->model->hp.hidden;

    for (int t = task * TASK_ROWS; t < end_of(w->p, task); t++)
        norm_forward(s->kind, s->eps, n->weight, n->bias, w->record->x + (size_t)t * h, (int)h,
                     w->record->tape.normed + (size_t)t * h);
}

/* A norm over each head, or over all in one. */
static void norm_heads(const struct base_layer *l, const float *weight, const float *x, int heads,
                       float *y)
{
    const struct mixer_shape *s = &l->shape->mixer;
    int whole = s->qk_norm == QK_NORM_WHOLE, dim = whole ? heads * s->key_dim : s->key_dim;

    for (int i = 0; i < (whole ? 1 : heads); i++)
        norm_forward(NORM_RMS, l->shape->norms.eps, weight, NULL, x + (ptrdiff_t)i * dim, dim,
                     y + (ptrdiff_t)i * dim);
}

static void norm_heads_back(const struct base_layer *l, const float *weight, const float *x,
                            int heads, float *d, float *room)
{
    const struct mixer_shape *s = &l->shape->mixer;
    int whole = s->qk_norm == QK_NORM_WHOLE, dim = whole ? heads * s->key_dim : s->key_dim;

    memcpy(room, d, (size_t)(heads * s->key_dim) * sizeof *d);
    memset(d, 0, (size_t)(heads * s->key_dim) * sizeof *d);
    for (int i = 0; i < (whole ? 1 : heads); i++)
        norm_backward(NORM_RMS, l->shape->norms.eps, weight, x + (ptrdiff_t)i * dim,
                      room + (ptrdiff_t)i * dim, dim, d + (ptrdiff_t)i * dim);
}

/* Cosines of the row's position; a sequence's length selects its table. */
static void tables(const struct pass *p, int row, const float **cosines, const float **sines)
{
    const struct rope *r = p->rope;
    int sequence = 0;
    enum rope_variant v;

    while (p->starts[sequence + 1] <= row)
        sequence++;
    v = rope_choose(r, p->starts[sequence + 1] - p->starts[sequence]);
    *cosines = r->cos[v] + (ptrdiff_t)p->positions[row] * r->pairs;
    *sines = r->sin[v] + (ptrdiff_t)p->positions[row] * r->pairs;
}

static void turn_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct mixer_shape *s = &w->layer->shape->mixer;
    const struct tape *t = &w->record->tape;
    ptrdiff_t nq = (ptrdiff_t)s->heads * s->key_dim, nk = (ptrdiff_t)s->kv_heads * s->key_dim;

    for (int r = task * TASK_ROWS; r < end_of(w->p, task); r++) {
        const float *c, *si;

        if (s->qk_norm != QK_NORM_NONE) {
            memcpy(t->q_raw + r * nq, t->q + r * nq, (size_t)nq * sizeof(float));
            memcpy(t->k_raw + r * nk, t->k + r * nk, (size_t)nk * sizeof(float));
            norm_heads(w->layer, w->layer->w->q_norm, t->q_raw + r * nq, s->heads, t->q + r * nq);
            norm_heads(w->layer, w->layer->w->k_norm, t->k_raw + r * nk, s->kv_heads,
                       t->k + r * nk);
        }
        if (s->rope == ROPE_NONE)
            continue;
        tables(w->p, r, &c, &si);
        rotate(s, t->q + r * nq, s->heads, c, si, false);
        rotate(s, t->k + r * nk, s->kv_heads, c, si, false);
    }
}

static void turn_back(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct mixer_shape *s = &w->layer->shape->mixer;
    const struct tape *t = &w->record->tape;
    ptrdiff_t nq = (ptrdiff_t)s->heads * s->key_dim, nk = (ptrdiff_t)s->kv_heads * s->key_dim;

    for (int r = task * TASK_ROWS; r < end_of(w->p, task); r++) {
        const float *c, *si;

        if (s->rope != ROPE_NONE) {
            tables(w->p, r, &c, &si);
            rotate(s, t->dq + r * nq, s->heads, c, si, true);
            rotate(s, t->dk + r * nk, s->kv_heads, c, si, true);
        }
        if (s->qk_norm != QK_NORM_NONE) {
            norm_heads_back(w->layer, w->layer->w->q_norm, t->q_raw + r * nq, s->heads,
                            t->dq + r * nq, scratch);
            norm_heads_back(w->layer, w->layer->w->k_norm, t->k_raw + r * nk, s->kv_heads,
                            t->dk + r * nk, scratch);
        }
    }
}

static struct fan fan_in(const struct work *w, bool back)
{
    const struct base_layer *l = w->layer;
    const struct tape *t = &w->record->tape;
    int h = w->p->base->model->hp.hidden;
    struct fan f = {.n = w->p->n,
                    .x = t->normed,
                    .ldx = h,
                    .dx = back ? t->dnormed : NULL,
                    .lddx = h,
                    .n_products = 3};

    f.products[0] = (struct product){&l->q, back ? t->dq : t->q, l->q.rows, t->u[0], t->v_up[0]};
    f.products[1] = (struct product){&l->k, back ? t->dk : t->k, l->k.rows, t->u[1], t->v_up[1]};
    f.products[2] = (struct product){&l->v, back ? t->dv : t->v, l->v.rows, t->u[2], t->v_up[2]};
    return f;
}

/* y: o's output, or its gradient. */
static struct fan fan_out(const struct work *w, float *y, float *dx)
{
    const struct base_layer *l = w->layer;
    const struct tape *t = &w->record->tape;

    return (struct fan){.n = w->p->n,
                        .x = t->out,
                        .ldx = l->o.cols,
                        .dx = dx,
                        .lddx = l->o.cols,
                        .products = {{&l->o, y, l->o.rows, t->u[3], t->v_up[3]}},
                        .n_products = 1};
}

static struct attention attention_of(const struct work *w)
{
    const struct tape *t = &w->record->tape;

    return (struct attention){.shape = &w->layer->shape->mixer,
                              .starts = w->p->starts,
                              .n = w->p->sequences,
                              .q = t->q,
                              .k = t->k,
                              .v = t->v,
                              .out = t->out,
                              .dout = t->dout,
                              .dq = t->dq,
                              .dk = t->dk,
                              .dv = t->dv};
}

/* mid = x + scale * mid */
static void add_residual(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    size_t h = (size_t)w->p->base->model->hp.hidden, from = (size_t)(task * TASK_ROWS) * h,
           to = (size_t)end_of(w->p, task) * h;
    float scale = hparams_residual(&w->p->base->model->hp);

    for (size_t i = from; i < to; i++)
        w->record->tape.mid[i] = w->record->x[i] + scale * w->record->tape.mid[i];
}

void mixer_forward(const struct pass *p, int l)
{
    struct work w = {p, &p->base->layers[l], &p->layers[l], NULL};
    struct fan in = fan_in(&w, false), out = fan_out(&w, w.record->tape.mid, NULL);
    struct attention a = attention_of(&w);
    int tasks = row_tasks(p->n);

    crew_each(p->crew, tasks, norm_rows, &w);
    products_forward(p->crew, &in, 1);
    crew_each(p->crew, tasks, turn_rows, &w);
    attention_forward(p->crew, &a);
    products_forward(p->crew, &out, 1);
    crew_each(p->crew, tasks, add_residual, &w);
}

/* dmid = scale * d: the gradient of o's output. */
static void scale_back(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    size_t h = (size_t)w->p->base->model->hp.hidden, from = (size_t)(task * TASK_ROWS) * h,
           to = (size_t)end_of(w->p, task) * h;
    float scale = hparams_residual(&w->p->base->model->hp);

    for (size_t i = from; i < to; i++)
        w->record->tape.dmid[i] = scale * w->d[i];
}

static void norm_back(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct norms_shape *s = &w->layer->shape->norms;
    size_t h = (size_t)w->p->base->model->hp.hidden;

    for (int t = task * TASK_ROWS; t < end_of(w->p, task); t++)
        norm_backward(s->kind, s->eps, w->layer->w->attention_norm.weight,
                      w->record->x + (size_t)t * h, w->record->tape.dnormed + (size_t)t * h, (int)h,
                      w->d + (size_t)t * h);
}

void mixer_backward(const struct pass *p, int l, float *d)
{
    struct work w = {p, &p->base->layers[l], &p->layers[l], d};
    const struct tape *tape = &w.record->tape;
    struct fan in = fan_in(&w, true), out = fan_out(&w, tape->dmid, tape->dout);
    struct attention a = attention_of(&w);
    int tasks = row_tasks(p->n);

    crew_each(p->crew, tasks, scale_back, &w);
    products_backward(p->crew, &out, 1);
    attention_backward(p->crew, &a);
    crew_each(p->crew, tasks, turn_back, &w);
    if (l == 0)
        in.dx = NULL; /* the embedding is frozen: no gradient needed */
    products_backward(p->crew, &in, 1);
    if (l > 0)
        crew_each(p->crew, tasks, norm_back, &w);
}
