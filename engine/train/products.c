/* See products.h. */
#include "engine/train/products.h"

#include <string.h>

/* Panels stay in a core's own cache between dequantisation and multiplication. */
#define ROWS 256    /* of a panel forwards */
#define DEPTH 512   /* of a panel backwards */
#define COLUMNS 256 /* of either: what block formats allow */

struct job {
    const struct fan *fans;
    int n;
};

static int larger_rank(int rank, const struct linear *l)
{
    return l->module && l->module->rank > rank ? l->module->rank : rank;
}

size_t products_scratch(const struct base *b, int rows)
{
    int rank = 0;

    for (int l = 0; l < b->model->hp.n_layers; l++) {
        const struct base_layer *x = &b->layers[l];
        const struct linear *attention[] = {&x->q, &x->k, &x->v, &x->o};

        for (int i = 0; i < 4; i++)
            rank = larger_rank(rank, attention[i]);
        for (int i = 0; i < shape_experts(x->shape); i++)
            for (int part = 0; part < 3; part++)
                rank = larger_rank(rank, &x->experts[i][part]);
    }
    return (size_t)COLUMNS * DEPTH + (size_t)rows * (size_t)rank;
}

/* ---- tasks ---- */

static int panels(int size, int by)
{
    return (size + by - 1) / by;
}

static int panels_forward(const struct fan *f)
{
    int sum = 0;

    for (int i = 0; f->n && i < f->n_products; i++)
        sum += panels(f->products[i].w->rows, ROWS);
    return sum;
}

/* Panels of columns, and one task for the modules' gradients. */
static int panels_backward(const struct fan *f)
{
    return f->n ? (f->dx ? panels(f->products[0].w->cols, COLUMNS) : 0) + 1 : 0;
}

static const struct fan *fan_of(const struct job *j, int (*count)(const struct fan *f), int *task)
{
    const struct fan *f = j->fans;

    for (int n; *task >= (n = count(f)); f++)
        *task -= n;
    return f;
}

static int sum_of(const struct job *j, int (*count)(const struct fan *f))
{
    int sum = 0;

    for (int i = 0; i < j->n; i++)
        sum += count(&j->fans[i]);
    return sum;
}

static int products_of(const struct fan *f)
{
    return f->n ? f->n_products : 0;
}

/* For each matrix used: a multiplication and an addition per weight and row. */
static double operations(const struct fan *fans, int n, bool back)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < fans[i].n_products && (!back || fans[i].dx); k++)
            sum += 2.0 * fans[i].n * fans[i].products[k].w->rows * fans[i].products[k].w->cols;
    return sum;
}

/* ---- forwards ---- */

static void project_down(void *ctx, int task, float *scratch)
{
    const struct fan *f = fan_of(ctx, products_of, &task);
    const struct product *p = &f->products[task];
    const struct module *m = p->w->module;

    if (!m)
        return;
    /* A x' and transposed: such a narrow product is three times as fast the other way round */
    multiply(false, true, m->rank, f->n, m->cols, 1.0f, m->a, m->cols, f->x, f->ldx, 0.0f, scratch,
             f->n);
    for (int t = 0; t < f->n; t++)
        for (int k = 0; k < m->rank; k++)
            p->u[t * m->rank + k] = scratch[k * f->n + t];
}

static void forward_panel(void *ctx, int task, float *scratch)
{
    const struct fan *f = fan_of(ctx, panels_forward, &task);
    const struct product *p = f->products;
    const struct module *m;
    int r, n;

    for (int k; task >= (k = panels(p->w->rows, ROWS)); p++)
        task -= k;
    r = task * ROWS;
    n = p->w->rows - r < ROWS ? p->w->rows - r : ROWS;
    for (int c = 0, k; c < p->w->cols; c += k) {
        const float *w;
        ptrdiff_t ld;

        k = p->w->cols - c < COLUMNS ? p->w->cols - c : COLUMNS;
        w = linear_panel(p->w, r, n, c, k, scratch, &ld);
        multiply(false, true, f->n, n, k, 1.0f, f->x + c, f->ldx, w, ld, c ? 1.0f : 0.0f, p->y + r,
                 p->ldy);
    }
    if ((m = p->w->module))
        multiply(false, true, f->n, n, m->rank, m->scale, p->u, m->rank,
                 m->b + (size_t)(p->w->first + r) * (size_t)m->rank, m->rank, 1.0f, p->y + r,
                 p->ldy);
    for (int t = 0; p->w->bias && t < f->n; t++)
        for (int i = 0; i < n; i++)
            p->y[t * p->ldy + r + i] += p->w->bias[r + i];
}

void products_project(struct crew *c, const struct fan *fans, int n)
{
    struct job j = {fans, n};

    crew_each(c, sum_of(&j, products_of), project_down, &j);
}

void products_forward(struct crew *c, const struct fan *fans, int n)
{
    struct job j = {fans, n};

    products_project(c, fans, n);
    crew_each(c, sum_of(&j, panels_forward), forward_panel, &j);
    c->operations += operations(fans, n, false);
}

/* ---- backwards ---- */

static void project_up(void *ctx, int task, float *scratch)
{
    const struct fan *f = fan_of(ctx, products_of, &task);
    const struct product *p = &f->products[task];
    const struct module *m = p->w->module;

    if (m)
        multiply(false, false, f->n, m->rank, p->w->rows, m->scale, p->y, p->ldy,
                 m->b + (size_t)p->w->first * (size_t)m->rank, m->rank, 0.0f, p->v, m->rank);
}

static void backward_columns(const struct fan *f, int c, float *scratch)
{
    int cols = f->products[0].w->cols, n = cols - c < COLUMNS ? cols - c : COLUMNS;
    float beta = 0.0f;

    for (int i = 0; i < f->n_products; i++) {
        const struct product *p = &f->products[i];
        const struct module *m = p->w->module;

        for (int r = 0, k; r < p->w->rows; r += k, beta = 1.0f) {
            const float *w;
            ptrdiff_t ld;

            k = p->w->rows - r < DEPTH ? p->w->rows - r : DEPTH;
            w = linear_panel(p->w, r, k, c, n, scratch, &ld);
            multiply(false, false, f->n, n, k, 1.0f, p->y + r, p->ldy, w, ld, beta, f->dx + c,
                     f->lddx);
        }
        if (m)
            multiply(false, false, f->n, n, m->rank, 1.0f, p->v, m->rank, m->a + c, m->cols, 1.0f,
                     f->dx + c, f->lddx);
    }
}

/* x (n, rank) times its row's count. */
static const float *counted(const struct fan *f, const float *x, int rank, float *room)
{
    if (!f->counts)
        return x;
    for (int t = 0; t < f->n; t++)
        for (int k = 0; k < rank; k++)
            room[(size_t)t * (size_t)rank + (size_t)k] = f->counts[t] *
                                                         x[(size_t)t * (size_t)rank + (size_t)k];
    return room;
}

static void add_gradients(const struct fan *f, float *scratch)
{
    for (int i = 0; i < f->n_products; i++) {
        const struct product *p = &f->products[i];
        const struct module *m = p->w->module;

        if (!m || !m->trained)
            continue;
        multiply(true, false, p->w->rows, m->rank, f->n, m->scale, p->y, p->ldy,
                 counted(f, p->u, m->rank, scratch), m->rank, 1.0f,
                 m->grad_b + (size_t)p->w->first * (size_t)m->rank, m->rank);
        multiply(true, false, m->rank, m->cols, f->n, 1.0f, counted(f, p->v, m->rank, scratch),
                 m->rank, f->x, f->ldx, 1.0f, m->grad_a, m->cols);
    }
}

static void backward_task(void *ctx, int task, float *scratch)
{
    const struct fan *f = fan_of(ctx, panels_backward, &task);

    if (task < panels_backward(f) - 1)
        backward_columns(f, task * COLUMNS, scratch);
    else
        add_gradients(f, scratch);
}

void products_backward(struct crew *c, const struct fan *fans, int n)
{
    struct job j = {fans, n};

    crew_each(c, sum_of(&j, products_of), project_up, &j);
    crew_each(c, sum_of(&j, panels_backward), backward_task, &j);
    c->operations += operations(fans, n, true);
}
