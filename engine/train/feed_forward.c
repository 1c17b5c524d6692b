/* The second half of a layer: norm, routing, experts, residual. See layer.h. A token's row of each
 * of its experts is computed without its weight; in the backward pass the weight's own gradient is
 * the dot product of the row's output and the incoming gradient, computed after down's product, and
 * gradients of down's adapter are weighted by the row's weight. */
#include "engine/device/numerics.h"
#include "engine/train/layer.h"
#include "engine/train/norm.h"
#include "engine/train/routing.h"
#include "engine/train/wide.h"

#include <math.h>
#include <string.h>

#define PIECE 256 /* values of a row activated at a time */

struct work {
    const struct pass *p;
    const struct base_layer *layer;
    const struct layer_record *record;
    float *next; /* the layer's output */
    float *d;
    bool again;
    int routed; /* rows of routed experts */
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static size_t hidden(const struct work *w)
{
    return (size_t)w->p->base->model->hp.hidden;
}

static struct work work_of(const struct pass *p, int l)
{
    struct work w = {.p = p, .layer = &p->base->layers[l], .record = &p->layers[l]};

    w.routed = w.layer->shape->ffn.experts ? p->n * w.layer->shape->ffn.used : 0;
    return w;
}

/* ---- routing ---- */

static void norm_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct norms_shape *s = &w->layer->shape->norms;
    const struct norm_weights *n = &w->layer->w->expert_norm;
    const struct tape *tape = &w->record->tape;
    size_t h = hidden(w);

    for (int t = task * TASK_ROWS; t < least(w->p->n, (task + 1) * TASK_ROWS); t++)
        norm_forward(s->kind, s->eps, n->weight, n->bias, tape->mid + (size_t)t * h, (int)h,
                     tape->normed_mid + (size_t)t * h);
}

static void score_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct tape *t = &w->record->tape;
    const struct ffn_shape *f = &w->layer->shape->ffn;
    int h = (int)hidden(w), r = task * TASK_ROWS, n = least(w->p->n - r, TASK_ROWS);
    float *scores = t->scores + (ptrdiff_t)r * f->experts;

    multiply(false, true, n, f->experts, h, 1.0f, t->normed_mid + (ptrdiff_t)r * h, h,
             w->layer->w->router, h, 0.0f, scores, f->experts);
    for (int i = 0; i < n; i++, scores += f->experts) {
        for (int e = 0; w->layer->w->score_bias && e < f->experts; e++)
            scores[e] += w->layer->w->score_bias[e];
        if (!w->again)
            route_forward(&f->router, scores, f->experts, f->used,
                          w->record->experts + (ptrdiff_t)(r + i) * f->used,
                          w->record->weights + (ptrdiff_t)(r + i) * f->used);
    }
}

static void score_shared(const struct work *w)
{
    const struct tape *t = &w->record->tape;
    int h = (int)hidden(w);

    if (!w->layer->w->shared_router)
        return;
    multiply(false, true, w->p->n, 1, h, 1.0f, t->normed_mid, h, w->layer->w->shared_router, h,
             0.0f, t->shared, 1);
    for (int i = 0; i < w->p->n; i++)
        t->shared[i] = 1.0f / (1.0f + expf(-t->shared[i]));
}

/* Sorts rows by expert, tokens in order within each. */
static void place_rows(const struct work *w)
{
    const struct tape *t = &w->record->tape;
    const struct ffn_shape *f = &w->layer->shape->ffn;

    memset(t->first, 0, (size_t)(f->experts + 1) * sizeof *t->first);
    for (int i = 0; i < w->routed; i++)
        t->first[w->record->experts[i] + 1]++;
    for (int e = 0; e < f->experts; e++)
        t->first[e + 1] += t->first[e];
    for (int i = 0; i < w->routed; i++)
        t->row_of[i] = t->first[w->record->experts[i]]++;
    for (int e = f->experts; e > 0; e--)
        t->first[e] = t->first[e - 1];
    t->first[0] = 0;
    for (int i = 0; i < w->routed; i++) {
        t->token_of[t->row_of[i]] = i / f->used;
        t->counts[t->row_of[i]] = w->record->weights[i];
    }
}

static void gather_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct tape *t = &w->record->tape;
    size_t h = hidden(w);

    for (int r = task * TASK_ROWS; r < least(w->routed, (task + 1) * TASK_ROWS); r++)
        memcpy(t->gathered + (size_t)r * h, t->normed_mid + (size_t)t->token_of[r] * h,
               h * sizeof(float));
}

/* ---- experts ---- */

/* Rows of an expert; start of their intermediate values. */
struct span {
    int first, n, width;
    ptrdiff_t inner;
};

static struct span span_of(const struct work *w, int expert)
{
    const struct ffn_shape *f = &w->layer->shape->ffn;
    const struct tape *t = &w->record->tape;

    if (expert == f->experts)
        return (struct span){w->routed, w->p->n, f->shared_width, (ptrdiff_t)w->routed * f->width};
    return (struct span){t->first[expert], t->first[expert + 1] - t->first[expert], f->width,
                         (ptrdiff_t)t->first[expert] * f->width};
}

static struct product product_of(const struct work *w, const struct span *s, int expert, int part,
                                 float *y, ptrdiff_t ldy)
{
    const struct linear *l = &w->layer->experts[expert][part];
    const struct tape *t = &w->record->tape;
    ptrdiff_t rank = l->module ? l->module->rank : 0, at = s->first * rank;

    return (struct product){l, y, ldy, rank ? t->row_u[part] + at : NULL,
                            rank ? t->row_v[part] + at : NULL};
}

/* Gate and up of every expert. back: dx goes to the experts' rows. */
static int fans_in(const struct work *w, bool back)
{
    const struct tape *t = &w->record->tape;
    int n = shape_experts(w->layer->shape), h = (int)hidden(w);

    for (int e = 0; e < n; e++) {
        struct span s = span_of(w, e);
        bool shared = e == w->layer->shape->ffn.experts;
        struct fan *f = &t->fans[e];

        *f = (struct fan){.n = s.n,
                          .x = shared ? t->normed_mid : t->gathered + (ptrdiff_t)s.first * h,
                          .ldx = h,
                          .dx = back ? t->rows + (ptrdiff_t)s.first * h : NULL,
                          .lddx = h};
        for (int part = 0; part < 2; part++)
            if (w->layer->experts[e][part].rows)
                f->products[f->n_products++] =
                    product_of(w, &s, e, part, (part ? t->up : t->gate) + s.inner, s.width);
    }
    return n;
}

/* Down of every expert: its outputs, or their gradients, at `rows`. */
static int fans_out(const struct work *w, float *dx)
{
    const struct tape *t = &w->record->tape;
    int n = shape_experts(w->layer->shape), h = (int)hidden(w);

    for (int e = 0; e < n; e++) {
        struct span s = span_of(w, e);
        bool shared = e == w->layer->shape->ffn.experts;

        t->fans[e] = (struct fan){.n = s.n,
                                  .x = t->hidden + s.inner,
                                  .ldx = s.width,
                                  .dx = dx ? dx + s.inner : NULL,
                                  .lddx = s.width,
                                  .counts = !shared                      ? t->counts + s.first
                                            : w->layer->w->shared_router ? t->shared
                                                                         : NULL,
                                  .n_products = 1};
        t->fans[e].products[0] = product_of(w, &s, e, 2, t->rows + (ptrdiff_t)s.first * h, h);
    }
    return n;
}

/* out: 1 + exp(-x) */
static void exp_less(const float *x, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = -x[i];
    exp_all(out, n, 0.0f);
    for (int i = 0; i < n; i++)
        out[i] += 1.0f;
}

static void activate(enum activation a, const float *gate, const float *up, int n, float *out)
{
    if (a == ACTIVATION_SILU)
        exp_less(gate, n, out);
    for (int i = 0; i < n && a == ACTIVATION_SILU; i++)
        out[i] = gate[i] / out[i] * up[i];
    for (int i = 0; i < n && a == ACTIVATION_GELU_PLAIN; i++) {
        float inner = 0.79788456080286536f * (up[i] + 0.044715f * up[i] * up[i] * up[i]);

        out[i] = 0.5f * up[i] * (1.0f + tanhf(inner));
    }
}

static void silu_back(float *gate, const float *up, int n, float *d)
{
    float room[PIECE];

    exp_less(gate, n, room);
    for (int i = 0; i < n; i++) {
        float s = 1.0f / room[i], silu = gate[i] * s;

        gate[i] = d[i] * up[i] * (s + silu * (1.0f - s));
        d[i] *= silu;
    }
}

/* d becomes the gradient of up, that of gate overwrites gate. */
static void activate_back(enum activation a, float *gate, const float *up, int n, float *d)
{
    for (int i = 0; i < n && a == ACTIVATION_SILU; i += PIECE)
        silu_back(gate + i, up + i, least(n - i, PIECE), d + i);
    for (int i = 0; i < n && a == ACTIVATION_GELU_PLAIN; i++) {
        float x = up[i], t = tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)),
              slope = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * x * x);

        d[i] *= 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
    }
}

/* A row of any expert: start and number of its intermediate values. */
static struct span span_at(const struct work *w, int row)
{
    const struct ffn_shape *f = &w->layer->shape->ffn;

    if (row < w->routed)
        return (struct span){row, 1, f->width, (ptrdiff_t)row * f->width};
    return (struct span){row, 1, f->shared_width,
                         (ptrdiff_t)w->routed * f->width +
                             (ptrdiff_t)(row - w->routed) * f->shared_width};
}

static int rows_of(const struct work *w)
{
    return w->routed + (w->layer->shape->ffn.shared ? w->p->n : 0);
}

static void activate_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct tape *t = &w->record->tape;

    for (int r = task * TASK_ROWS; r < least(rows_of(w), (task + 1) * TASK_ROWS); r++) {
        struct span s = span_at(w, r);

        activate(w->layer->shape->ffn.activation, t->gate + s.inner, t->up + s.inner, s.width,
                 t->hidden + s.inner);
    }
}

/* Weight of row `row`. */
static float weight_at(const struct work *w, int row)
{
    const struct tape *t = &w->record->tape;

    return row < w->routed              ? t->counts[row]
           : w->layer->w->shared_router ? t->shared[row - w->routed]
                                        : 1.0f;
}

/* The row of a token's slot; slot `used`: the shared expert's. */
static int row_at(const struct work *w, int token, int slot)
{
    const struct ffn_shape *f = &w->layer->shape->ffn;

    return w->routed && slot < f->used ? w->record->tape.row_of[token * f->used + slot]
                                       : w->routed + token;
}

static int slots_of(const struct work *w)
{
    const struct ffn_shape *f = &w->layer->shape->ffn;

    return (w->routed ? f->used : 0) + f->shared;
}

static void combine_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    size_t h = hidden(w);
    float scale = hparams_residual(&w->p->base->model->hp);

    for (int t = task * TASK_ROWS; t < least(w->p->n, (task + 1) * TASK_ROWS); t++) {
        float *to = w->next + (size_t)t * h;

        memcpy(to, w->record->tape.mid + (size_t)t * h, h * sizeof *to);
        for (int i = 0; i < slots_of(w); i++) {
            int row = row_at(w, t, i);
            const float *from = w->record->tape.rows + (size_t)row * h;
            float by = scale * weight_at(w, row);

            for (size_t c = 0; c < h; c++)
                to[c] += by * from[c];
        }
    }
}

void feed_forward(const struct pass *p, int l, bool again)
{
    struct work w = work_of(p, l);
    int n;

    w.next = p->layers[l + 1].x;
    w.again = again;
    crew_each(p->crew, row_tasks(p->n), norm_rows, &w);
    if (w.routed) {
        crew_each(p->crew, row_tasks(p->n), score_rows, &w);
        place_rows(&w);
        crew_each(p->crew, row_tasks(w.routed), gather_rows, &w);
    }
    score_shared(&w);
    n = fans_in(&w, false);
    products_forward(p->crew, w.record->tape.fans, n);
    crew_each(p->crew, row_tasks(rows_of(&w)), activate_rows, &w);
    n = fans_out(&w, NULL);
    if (again) { /* only the inputs of down's adapters are needed */
        products_project(p->crew, w.record->tape.fans, n);
        return;
    }
    products_forward(p->crew, w.record->tape.fans, n);
    crew_each(p->crew, row_tasks(p->n), combine_rows, &w);
}

/* ---- backward ---- */

/* The gradient of each row, without its weight. */
static void spread_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    size_t h = hidden(w);
    float scale = hparams_residual(&w->p->base->model->hp);

    for (int r = task * TASK_ROWS; r < least(rows_of(w), (task + 1) * TASK_ROWS); r++) {
        int t = r < w->routed ? w->record->tape.token_of[r] : r - w->routed;
        float *to = w->record->tape.rows + (size_t)r * h;
        const float *from = w->d + (size_t)t * h;

        for (size_t c = 0; c < h; c++)
            to[c] = scale * from[c];
    }
}

/* Expert of a routed row, or the shared one. */
static int expert_at(const struct work *w, int row)
{
    int e = 0;

    if (row >= w->routed)
        return w->layer->shape->ffn.experts;
    while (w->record->tape.first[e + 1] <= row)
        e++;
    return e;
}

/* The weight's gradient, then the gradients of gate and up, overwriting their values. d: gradient
 * of the intermediate values from down. */
static void back_row(const struct work *w, int row, float *d)
{
    const struct tape *t = &w->record->tape;
    struct span s = span_at(w, row);
    const float *bias = w->layer->experts[expert_at(w, row)][2].bias,
                *flow = t->rows + (size_t)row * hidden(w);
    float *inner = d + s.inner, weight = weight_at(w, row), along = 0.0f;

    for (int i = 0; i < s.width; i++)
        along += inner[i] * t->hidden[s.inner + i];
    for (size_t c = 0; bias && c < hidden(w); c++)
        along += flow[c] * bias[c];
    t->dweights[row] = along;
    for (int i = 0; i < s.width; i++)
        inner[i] *= weight;
    activate_back(w->layer->shape->ffn.activation, t->gate + s.inner, t->up + s.inner, s.width,
                  inner);
    memcpy(t->up + s.inner, inner, (size_t)s.width * sizeof *inner);
}

static void back_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;

    for (int r = task * TASK_ROWS; r < least(rows_of(w), (task + 1) * TASK_ROWS); r++)
        back_row(w, r, w->record->tape.dhidden);
}

/* Gradient of the normed row: from its experts, then from its weights. */
static void collect_rows(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct ffn_shape *f = &w->layer->shape->ffn;
    const struct tape *t = &w->record->tape;
    size_t h = hidden(w);

    for (int i = task * TASK_ROWS; i < least(w->p->n, (task + 1) * TASK_ROWS); i++) {
        float *to = t->dnormed + (size_t)i * h, *d = t->dscores + (ptrdiff_t)i * f->experts,
              dweights[NUM_EXPERTS];

        memset(to, 0, h * sizeof *to);
        for (int k = 0; k < slots_of(w); k++) {
            const float *from = t->rows + (size_t)row_at(w, i, k) * h;

            for (size_t c = 0; c < h; c++)
                to[c] += from[c];
        }
        if (w->routed) {
            for (int k = 0; k < f->used; k++)
                dweights[k] = t->dweights[row_at(w, i, k)];
            route_backward(&f->router, t->scores + (ptrdiff_t)i * f->experts, f->experts, f->used,
                           w->record->experts + (ptrdiff_t)i * f->used, dweights, d);
            multiply(false, false, 1, (int)h, f->experts, 1.0f, d, f->experts, w->layer->w->router,
                     (ptrdiff_t)h, 1.0f, to, (ptrdiff_t)h);
        }
        if (w->layer->w->shared_router) {
            float s = t->shared[i], by = t->dweights[w->routed + i] * s * (1.0f - s);

            for (size_t c = 0; c < h; c++)
                to[c] += by * w->layer->w->shared_router[c];
        }
    }
}

static void norm_back(void *ctx, int task, float *scratch)
{
    const struct work *w = ctx;
    const struct norms_shape *s = &w->layer->shape->norms;
    const struct tape *tape = &w->record->tape;
    size_t h = hidden(w);

    for (int t = task * TASK_ROWS; t < least(w->p->n, (task + 1) * TASK_ROWS); t++)
        norm_backward(s->kind, s->eps, w->layer->w->expert_norm.weight, tape->mid + (size_t)t * h,
                      tape->dnormed + (size_t)t * h, (int)h, w->d + (size_t)t * h);
}

void feed_backward(const struct pass *p, int l, float *d)
{
    struct work w = work_of(p, l);
    int n;

    w.d = d;
    crew_each(p->crew, row_tasks(rows_of(&w)), spread_rows, &w);
    n = fans_out(&w, w.record->tape.dhidden);
    products_backward(p->crew, w.record->tape.fans, n);
    crew_each(p->crew, row_tasks(rows_of(&w)), back_rows, &w);
    n = fans_in(&w, true);
    products_backward(p->crew, w.record->tape.fans, n);
    crew_each(p->crew, row_tasks(p->n), collect_rows, &w);
    crew_each(p->crew, row_tasks(p->n), norm_back, &w);
}
