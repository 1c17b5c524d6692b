/* See loss.h. */
#include "engine/train/loss.h"

#include "engine/train/norm.h"
#include "engine/train/wide.h"

#include <math.h>
#include <string.h>

struct work {
    const struct pass *p;
    struct loss_room *room;
    const struct target *targets; /* of these rows */
    int n;
    float share;
    bool back;
};

void loss_lay_out(struct loss_room *l, struct room *r, const struct hparams *hp)
{
    size_t h = (size_t)hp->hidden;

    l->x = room_take(r, LOSS_ROWS * h);
    l->normed = room_take(r, LOSS_ROWS * h);
    l->dnormed = room_take(r, LOSS_ROWS * h);
    l->logits = room_take(r, LOSS_ROWS * (size_t)hp->n_vocab);
}

static const float *given(const struct pass *p, int row)
{
    const struct hparams *hp = &p->base->model->hp;

    return p->layers[hp->n_layers].x + (size_t)row * (size_t)hp->hidden;
}

static void norm_row(void *ctx, int i, float *scratch)
{
    const struct work *w = ctx;
    const struct model *m = w->p->base->model;
    const struct norms_shape *s = &m->hp.common.norms;
    size_t h = (size_t)m->hp.hidden;

    memcpy(w->room->x + (size_t)i * h, given(w->p, w->targets[i].row), h * sizeof(float));
    norm_forward(s->kind, s->eps, m->output_norm.weight, m->output_norm.bias,
                 w->room->x + (size_t)i * h, (int)h, w->room->normed + (size_t)i * h);
}

/* In double, in eight parallel partial sums. */
static double sum_in_pieces(const float *x, int n)
{
    double pieces[8] = {0}, sum = 0.0;
    int i = 0;

    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            pieces[j] += (double)x[i + j];
    for (; i < n; i++)
        sum += (double)x[i];
    for (int j = 0; j < 8; j++)
        sum += pieces[j];
    return sum;
}

/* Replaces logits by their gradient. */
static void predict_row(void *ctx, int i, float *scratch)
{
    const struct work *w = ctx;
    const struct hparams *hp = &w->p->base->model->hp;
    float *z = w->room->logits + (size_t)i * (size_t)hp->n_vocab, most = -INFINITY, by, share;
    double sum;
    int id = w->targets[i].id;

    for (int v = 0; v < hp->n_vocab; v++) {
        z[v] = hp->logit_divisor != 0.0f ? z[v] / hp->logit_divisor : z[v];
        most = z[v] > most ? z[v] : most;
    }
    w->room->nll[i] = (double)(most - z[id]);
    exp_all(z, hp->n_vocab, most);
    sum = sum_in_pieces(z, hp->n_vocab);
    w->room->nll[i] += log(sum);
    if (!w->back)
        return;
    by = w->share / (hp->logit_divisor != 0.0f ? hp->logit_divisor : 1.0f);
    share = (float)((double)by / sum);
    for (int v = 0; v < hp->n_vocab; v++)
        z[v] *= share;
    z[id] -= by;
}

static struct fan fan_of(const struct work *w)
{
    const struct linear *head = &w->p->base->head;

    return (struct fan){.n = w->n,
                        .x = w->room->normed,
                        .ldx = head->cols,
                        .dx = w->back ? w->room->dnormed : NULL,
                        .lddx = head->cols,
                        .products = {{.w = head, .y = w->room->logits, .ldy = head->rows}},
                        .n_products = 1};
}

static void back_rows(const struct work *w, float *d)
{
    const struct model *m = w->p->base->model;
    const struct norms_shape *s = &m->hp.common.norms;
    size_t h = (size_t)m->hp.hidden;

    for (int i = 0; i < w->n; i++)
        norm_backward(s->kind, s->eps, m->output_norm.weight, w->room->x + (size_t)i * h,
                      w->room->dnormed + (size_t)i * h, (int)h, d + (size_t)w->targets[i].row * h);
}

double loss_of(const struct pass *p, struct loss_room *room, const struct target *targets, int n,
               double share, float *d)
{
    double sum = 0.0;

    if (d)
        memset(d, 0, (size_t)p->n * (size_t)p->base->model->hp.hidden * sizeof *d);
    for (int i = 0; i < n; i += LOSS_ROWS) {
        struct work w = {
            p, room, targets + i, n - i < LOSS_ROWS ? n - i : LOSS_ROWS, (float)share, d != NULL};
        struct fan f = fan_of(&w);

        crew_each(p->crew, w.n, norm_row, &w);
        products_forward(p->crew, &f, 1);
        crew_each(p->crew, w.n, predict_row, &w);
        for (int k = 0; k < w.n; k++)
            sum += room->nll[k];
        if (d) {
            products_backward(p->crew, &f, 1);
            back_rows(&w, d);
        }
    }
    return sum;
}
