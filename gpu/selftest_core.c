/* Self-test of the kernels other than matrices: norm, quantisation of rows, the order of commands,
 * routing, combination. */
#include "gpu/jobs.h"
#include "gpu/selftest.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"
#include "engine/device/numerics.h"

#include <string.h>

static int upload(struct selftest *b, const float *data, size_t n, cl_mem *out)
{
    if (!data) {
        *out = NULL;
        return 0;
    }
    return memory_buffer(b->d, n * 4, out, "the self-test", b->e) < 0
               ? ERR_DEVICE
               : selftest_put(b, *out, data, n * 4);
}

int selftest_norm(struct selftest *b)
{
    const struct model *m = b->d->base.config.model;
    const struct layer_weights *layer = &m->layers[0];
    /* a model may lack one or the other */
    const struct norm_weights *w = m->output_norm.weight          ? &m->output_norm
                                   : layer->attention_norm.weight ? &layer->attention_norm
                                                                  : &layer->attention_after;
    const struct norms_shape *norms = &m->hp.common.norms;
    struct device *d = b->d;
    int n = m->hp.hidden, rows = d->base.config.max_rows < 3 ? d->base.config.max_rows : 3,
        rc = ERR_DEVICE;
    size_t count = (size_t)rows * (size_t)n, items = (size_t)d->row_items;
    float *x = selftest_randoms(b, count, 3.0f), *want = mem_alloc(count, 4),
          *got = mem_alloc(count, 4), *first = mem_alloc(count, 4);
    cl_mem mw = NULL, mb = NULL;
    bool same = true;

    for (int r = 0; x && want && r < rows; r++)
        reference_norm(x + (size_t)r * (size_t)n, norms, w, n, want + (size_t)r * (size_t)n);
    if (!x || !want || !got || !first || upload(b, w->weight, (size_t)n, &mw) < 0 ||
        upload(b, w->bias, (size_t)n, &mb) < 0 || selftest_put(b, d->x, x, count * 4) < 0 ||
        jobs_norm_args(d, norms, &(struct norm_rows){d->x, mw, mb, d->h, .rows = rows}, b->e) < 0 ||
        selftest_core(b, CORE_NORM, "norm", (size_t)rows * items, 1, 1, items) < 0 ||
        selftest_get(b, d->h, 0, got, count * 4) < 0 ||
        selftest_same_quantised(b, &d->hq, got, rows, n, &same) < 0)
        goto out;
    memcpy(first, got, count * 4);
    if (memcmp(got, want, count * 4) != 0)
        selftest_wrong(b, "norm");
    if (launch_args(d, d->core[CORE_QUANTISE], 0, b->e, "mmmmi", d->x, d->hq.q, d->hq.d, d->hq.s,
                    (int)count / 32) < 0 ||
        selftest_core(b, CORE_QUANTISE, "quantise", count / 32, 1, 1, 32) < 0 ||
        selftest_same_quantised(b, &d->hq, x, rows, n, &same) < 0)
        goto out;
    if (!same)
        selftest_wrong(b, "quantise");
    /* The order of every job: copy, kernel, copy, none of them awaited. Some drivers get the
     * kernels right and this wrong. */
    memset(got, 0, count * 4);
    if (job_begin(d, b->e) < 0 || launch_write(d, d->x, 0, x, count * 4, b->e) < 0 ||
        jobs_norm_args(d, norms, &(struct norm_rows){d->x, mw, mb, d->h, .rows = rows}, b->e) < 0 ||
        selftest_core(b, CORE_NORM, "norm", (size_t)rows * items, 1, 1, items) < 0 ||
        launch_read(d, d->h, 0, got, count * 4, b->e) < 0 || job_end(d, b->e) < 0 ||
        job_harvest(d, b->e) < 0)
        goto out;
    if (memcmp(got, first, count * 4) != 0)
        selftest_wrong(b, "queue");
    rc = 0;
out:
    memory_release(&mw);
    memory_release(&mb);
    mem_free(x);
    mem_free(want);
    mem_free(got);
    mem_free(first);
    return rc;
}

/* second: as the rows behind the first ones, of which there are none. */
static int run_rms(struct selftest *b, cl_mem w, int n, int rows, float eps, bool second,
                   const float *x, float *got)
{
    struct device *d = b->d;
    size_t bytes = (size_t)(rows * n) * 4;
    struct rms_rows all = {d->q, w, n, rows}, none = {d->q, w, n, 0};

    if (selftest_put(b, d->q, x, bytes) < 0 ||
        jobs_rms(d, second ? &none : &all, second ? &all : NULL, eps, b->e) < 0)
        return ERR_DEVICE;
    return selftest_get(b, d->q, 0, got, bytes);
}

/* The norm of q, with the width of the first layer that has it. */
int selftest_rms(struct selftest *b)
{
    const struct model *m = b->d->base.config.model;
    int layer = 0, rows = b->d->base.config.max_rows < 3 ? b->d->base.config.max_rows : 3;

    while (layer < m->hp.n_layers && !m->layers[layer].q_norm)
        layer++;
    if (layer == m->hp.n_layers)
        return 0;

    const float *norm = m->layers[layer].q_norm;
    int n = (int)model_qk_norm_values(m, layer, true), rc = ERR_MEMORY;
    float eps = hparams_layer(&m->hp, layer)->norms.eps,
          *x = selftest_randoms(b, (size_t)(rows * n), 3.0f),
          *got = mem_alloc((size_t)(rows * n), sizeof *got);
    cl_mem w = NULL;

    if (x && got)
        rc = upload(b, norm, (size_t)n, &w);
    for (int i = 0; i < 3 && rc == 0; i++) { /* the last time without weights */
        rc = run_rms(b, i < 2 ? w : NULL, n, rows, eps, i == 1, x, got);
        for (int r = 0; r < rows && rc == 0; r++)
            reference_rms(x + r * n, i < 2 ? norm : NULL, n, eps, x + r * n);
        if (rc == 0 && memcmp(got, x, (size_t)(rows * n) * 4) != 0)
            selftest_wrong(b, "rms_rows");
    }
    memory_release(&w);
    mem_free(x);
    mem_free(got);
    return rc == ERR_MEMORY ? error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test")
                            : rc;
}

#define ROUTE_ROWS 5
#define ROUTE_MOST 64 /* most experts that the rows use together */

/* Some rows and the reference's results: inputs of the kernels after routing. */
struct route_test {
    struct selftest *b;
    const struct hparams *hp;
    const struct ffn_shape *ffn;  /* of the layer */
    int layer, rows, used, count; /* count: of all rows together */
    int want[ROUTE_MOST];
    float weights[ROUTE_MOST];
};

static int no_memory(struct selftest *b)
{
    return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
}

/* Runs the kernel's routing of rows h; right: equal to the reference's. scores: one row, the
 * reference's. */
static int run_route(struct route_test *t, const float *h, struct routing *routing, float *scores,
                     bool *right)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    int n = t->hp->hidden, experts[ROUTE_MOST];
    float weights[ROUTE_MOST];

    if (memory_routing(d, t->layer, routing, b->e) < 0 ||
        selftest_put(b, d->h, h, (size_t)(t->rows * n) * 4) < 0 || job_begin(d, b->e) < 0 ||
        jobs_route(d, t->layer, routing, d->h, t->rows, 0, false, b->e) < 0 ||
        job_end(d, b->e) < 0 || job_harvest(d, b->e) < 0 ||
        selftest_get(b, d->all_chosen, 0, experts, (size_t)t->count * 4) < 0 ||
        selftest_get(b, d->all_weights, 0, weights, (size_t)t->count * 4) < 0)
        return ERR_DEVICE;
    for (int r = 0; r < t->rows; r++)
        reference_route(d->base.config.model, t->layer, h + (size_t)r * (size_t)n, scores,
                        t->want + r * t->used, t->weights + r * t->used);
    *right = memcmp(experts, t->want, (size_t)t->count * 4) == 0 &&
             memcmp(weights, t->weights, (size_t)t->count * 4) == 0;
    return 0;
}

static int test_route(struct route_test *t)
{
    float *h = selftest_randoms(t->b, (size_t)(t->rows * t->hp->hidden), 1.0f),
          *scores = mem_alloc((size_t)t->hp->n_experts, sizeof *scores);
    struct routing routing = {0};
    bool right = false;
    int rc = h && scores ? run_route(t, h, &routing, scores, &right) : no_memory(t->b);

    if (rc == 0 && !right)
        selftest_wrong(t->b, "route");
    memory_routing_release(&routing);
    mem_free(h);
    mem_free(scores);
    return rc;
}

/* The same, row by row by token_route, of rows x with the layer's norm; n: values of a row. */
static int run_token_route(struct route_test *t, float *x, struct norm_rows *w,
                           const struct routing *routing, float *h, float *scores, bool *right)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    const struct layer_weights *l = &d->base.config.model->layers[t->layer];
    const struct layer_shape *s = hparams_layer(t->hp, t->layer);
    int n = t->hp->hidden, experts[ROUTE_MOST], want[ROUTE_MOST];
    float weights[ROUTE_MOST], want_weights[ROUTE_MOST];
    size_t bytes = (size_t)n * 4;

    w->x = d->x;
    w->h = d->h;
    w->rows = 1;
    for (int r = 0; r < t->rows; r++, x += n) {
        if (selftest_put(b, d->x, x, bytes) < 0 || job_begin(d, b->e) < 0 ||
            jobs_token_route(d, t->layer, w, routing, 0, true, b->e) < 0 || job_end(d, b->e) < 0 ||
            job_harvest(d, b->e) < 0 ||
            selftest_get(b, d->all_chosen, 0, experts, (size_t)t->used * 4) < 0 ||
            selftest_get(b, d->all_weights, 0, weights, (size_t)t->used * 4) < 0 ||
            selftest_get(b, d->h, 0, h, bytes) < 0 ||
            selftest_same_quantised(b, &d->hq, h, 1, n, right) < 0)
            return ERR_DEVICE;
        reference_norm(x, &s->norms, &l->expert_norm, n, x);
        reference_route(d->base.config.model, t->layer, x, scores, want, want_weights);
        *right = *right && memcmp(h, x, bytes) == 0 &&
                 memcmp(experts, want, (size_t)t->used * 4) == 0 &&
                 memcmp(weights, want_weights, (size_t)t->used * 4) == 0;
    }
    return 0;
}

struct route_forms {
    struct route_test *t;
    struct norm_rows w;
    const struct routing *routing;
};

/* Norm and routing of a row: joined, or as two kernels. */
static int run_route_form(void *ctx, bool joined)
{
    struct route_forms *f = ctx;
    struct selftest *b = f->t->b;
    struct device *d = b->d;
    const struct layer_shape *s = hparams_layer(f->t->hp, f->t->layer);
    size_t items = (size_t)d->row_items;

    if (joined)
        return jobs_token_route(d, f->t->layer, &f->w, f->routing, 0, true, b->e);
    if (jobs_norm_args(d, &s->norms, &f->w, b->e) < 0 ||
        selftest_core(b, CORE_NORM, "norm", items, 1, 1, items) < 0)
        return ERR_DEVICE;
    return jobs_route(d, f->t->layer, f->routing, d->h, 1, 0, true, b->e);
}

static int test_token_route(struct route_test *t)
{
    struct device *d = t->b->d;
    const struct layer_weights *l = &d->base.config.model->layers[t->layer];
    size_t n = (size_t)t->hp->hidden;
    float *x = selftest_randoms(t->b, (size_t)t->rows * n, 3.0f), *h = mem_alloc(n, sizeof *h),
          *scores = mem_alloc((size_t)t->hp->n_experts, sizeof *scores);
    struct routing routing = {0};
    struct norm_rows w = {0};
    bool right = true;
    int rc = x && h && scores ? 0 : no_memory(t->b);

    if (rc == 0 && (memory_routing(d, t->layer, &routing, t->b->e) < 0 ||
                    upload(t->b, l->expert_norm.weight, n, &w.w) < 0 ||
                    upload(t->b, l->expert_norm.bias, n, &w.b) < 0))
        rc = ERR_DEVICE;
    if (rc == 0)
        rc = run_token_route(t, x, &w, &routing, h, scores, &right);
    if (rc == 0 && !right)
        selftest_wrong(t->b, "token_route");
    else if (rc == 0)
        rc = selftest_compare(t->b, "token_route", run_route_form,
                              &(struct route_forms){t, w, &routing});
    memory_routing_release(&routing);
    memory_release(&w.w);
    memory_release(&w.b);
    mem_free(x);
    mem_free(h);
    mem_free(scores);
    return rc;
}

/* Whether every (row, slot) is exactly once in a tile of its chosen expert. */
static bool tiles_right(const struct route_test *t, const int *tiles, int n_tiles,
                        const int *entries)
{
    int seen = 0;

    for (int k = 0; k < n_tiles; k++)
        for (int i = 0; i < tiles[4 * k + 1]; i++, seen++) {
            int at = tiles[4 * k] + i, row = at >= 0 && at < t->count ? entries[2 * at] : -1,
                to = row < 0 ? -1 : entries[2 * at + 1];

            if (row < 0 || row >= t->rows || to < 0 || to >= t->count || to % t->rows != row ||
                t->want[row * t->used + to / t->rows] != tiles[4 * k + 2])
                return false;
        }
    return seen == t->count;
}

static int test_group(struct route_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    int n_tiles = t->count + 1 < d->max_tiles ? t->count + 1 : d->max_tiles,
        tiles[4 * (ROUTE_MOST + 1)], entries[2 * ROUTE_MOST];

    if (selftest_put(b, d->all_chosen, t->want, (size_t)t->count * 4) < 0 ||
        launch_args(d, d->core[CORE_GROUP], 0, b->e, "mmmiiiiiiiii", d->all_chosen, d->tiles,
                    d->entries, t->rows, t->used, 0, t->ffn->experts + t->ffn->shared, 0, TILE,
                    n_tiles, 0, t->rows) < 0 ||
        selftest_core(b, CORE_GROUP, "group_rows", (size_t)d->row_items, 1, 1,
                      (size_t)d->row_items) < 0 ||
        selftest_get(b, d->tiles, 0, tiles, (size_t)n_tiles * 16) < 0 ||
        selftest_get(b, d->entries, 0, entries, (size_t)t->count * 8) < 0)
        return ERR_DEVICE;
    if (!tiles_right(t, tiles, n_tiles, entries))
        selftest_wrong(b, "group_rows");
    return 0;
}

/* Outputs of experts added to x by the kernel of that name, or by the norm that begins the next
 * layer, here one without weights. */
static int run_combine(struct route_test *t, bool by_norm, const float *out, const float *x,
                       float *got)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    int n = t->hp->hidden;
    size_t values = (size_t)(t->rows * n);
    struct norm_rows rows = {
        .x = d->x, .h = d->h, .rows = t->rows, .sum = {t->used, 0, t->used, 1.0f}};

    if (selftest_put(b, d->out, out, (size_t)(t->count * n) * 4) < 0 ||
        selftest_put(b, d->all_weights, t->weights, (size_t)t->count * 4) < 0 ||
        selftest_put(b, d->x, x, values * 4) < 0)
        return ERR_DEVICE;
    if (by_norm ? jobs_norm_args(d, &t->hp->common.norms, &rows, b->e) < 0 ||
                      selftest_core(b, CORE_NORM, "norm", (size_t)(t->rows * d->row_items), 1, 1,
                                    (size_t)d->row_items) < 0
                : launch_args(d, d->core[CORE_COMBINE], 0, b->e, "mmmiiiifii", d->out,
                              d->all_weights, d->x, 0, t->rows, t->used, t->used, 1.0, n, 0) < 0 ||
                      selftest_core(b, CORE_COMBINE, "combine", values, 1, 1, 32) < 0)
        return ERR_DEVICE;
    return selftest_get(b, d->x, 0, got, values * 4);
}

static int test_combine(struct route_test *t)
{
    int n = t->hp->hidden, rc = 0;
    size_t values = (size_t)(t->rows * n), outputs = (size_t)(t->count * n);
    float *out = selftest_randoms(t->b, outputs, 1.0f), *x = selftest_randoms(t->b, values, 1.0f),
          *want = mem_alloc(values, sizeof *want), *got = mem_alloc(values, sizeof *got);

    if (!out || !x || !want || !got)
        rc = no_memory(t->b);
    if (rc == 0)
        memcpy(want, x, values * sizeof *want);
    for (int r = 0; r < t->rows && rc == 0; r++)
        reference_combine(out + r * n, values, t->weights + r * t->used, t->used, n, want + r * n);
    for (int by_norm = 0; by_norm < 2 && rc == 0; by_norm++) {
        rc = run_combine(t, by_norm, out, x, got);
        if (rc == 0 && memcmp(got, want, values * 4) != 0)
            selftest_wrong(t->b, by_norm ? "norm" : "combine");
    }
    mem_free(out);
    mem_free(x);
    mem_free(want);
    mem_free(got);
    return rc;
}

/* Whether the device routes a layer that uses as many experts as any. */
static bool routes_all(const struct device *d, int layer)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *s = hparams_layer(hp, layer);

    return kernel_set_fuses(d, layer) && s->ffn.experts && shape_used(s) == hp->n_experts_used;
}

/* Routing, grouping and combination of a few rows, in the shape of the first layer that the device
 * routes. */
int selftest_route(struct selftest *b)
{
    const struct device_config *c = &b->d->base.config;
    const struct hparams *hp = &c->model->hp;
    struct route_test t = {.b = b, .hp = hp, .used = hp->n_experts_used};

    while (t.layer < hp->n_layers && !routes_all(b->d, t.layer))
        t.layer++;
    if (t.layer == hp->n_layers)
        return 0;
    t.ffn = &hparams_layer(hp, t.layer)->ffn;
    t.rows = ROUTE_ROWS * t.used > ROUTE_MOST ? ROUTE_MOST / t.used : ROUTE_ROWS;
    t.rows = c->max_rows < t.rows ? c->max_rows : t.rows;
    t.count = t.rows * t.used;
    if (t.rows < 1)
        return no_memory(b);
    if (b->d->token_route && test_token_route(&t) < 0)
        return ERR_DEVICE;
    return test_route(&t) < 0 || test_group(&t) < 0 || test_combine(&t) < 0 ? ERR_DEVICE : 0;
}

/* y += x, then x += 2 y. */
static int add_both(struct device *d, struct error *e)
{
    return jobs_add_rows(d, d->y, d->x, 1.0f, 1, e) < 0 ? ERR_DEVICE
                                                        : jobs_add_rows(d, d->x, d->y, 2.0f, 1, e);
}

/* Two launches of one kernel, recorded, replayed with another launch between whose arguments the
 * driver must not take for theirs; small whole numbers, of which all sums are exact. */
int selftest_replay(struct selftest *b)
{
    struct device *d = b->d;
    int n = d->base.config.model->hp.hidden, rc = ERR_DEVICE, done = 1;
    float *x = mem_alloc((size_t)n, 2 * sizeof *x), *y = x + n;
    struct token_recording *r = NULL;
    struct error why;

    if (!d->replay.usable) {
        mem_free(x);
        return 0;
    }
    for (int i = 0; x && i < n; i++) {
        x[i] = (float)(i % 7);
        y[i] = (float)(i % 5);
    }
    if (!x || selftest_put(b, d->x, x, (size_t)n * 4) < 0 ||
        selftest_put(b, d->y, y, (size_t)n * 4) < 0)
        goto out;
    if (!recordings_begin(d, 0, &why) || !(r = recordings_end(d, add_both(d, &why), &why)))
        selftest_wrong(b, "replay");
    for (int round = 0; r && round < 3; round++) {
        if (job_begin(d, b->e) < 0 || (done = recordings_run(d, r, 0, b->e)) < 0 ||
            jobs_add_rows(d, d->y, d->x, -1.0f, 1, b->e) < 0 || job_end(d, b->e) < 0 ||
            job_harvest(d, b->e) < 0)
            goto out;
        for (int i = 0; i < n; i++) {
            y[i] += x[i];
            x[i] += 2 * y[i];
            y[i] -= x[i];
        }
    }
    float *got = mem_alloc((size_t)n, 2 * sizeof *got);

    if (got && selftest_get(b, d->x, 0, got, (size_t)n * 4) == 0 &&
        selftest_get(b, d->y, 0, got + n, (size_t)n * 4) == 0)
        rc = 0;
    if (r && rc == 0 && (done != 1 || memcmp(got, x, (size_t)n * 8) != 0))
        selftest_wrong(b, "replay");
    mem_free(got);
out:
    recordings_forget(d);
    mem_free(x);
    return rc;
}
