/* Self-test of token_output (output.cl): the output projection of one token, the row, its norm and
 * the choice of its experts, against the numeric contract. */
#include "gpu/selftest.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"

#include <string.h>

#define CHOSEN_MOST 64 /* of a row */
#define TURNS 24       /* launches, in which different groups of rows end last */

struct output_test {
    struct selftest *b;
    int layer, hidden, first; /* row group of the first work-group */
    struct part o;
    struct norm_rows norm;
    struct routing routing;
    float *in, *row, *x, *y, *scores; /* the projection's input, the row; room */
    float weights[CHOSEN_MOST];       /* as they should be */
    int experts[CHOSEN_MOST], chosen; /* places of a row */
};

static const struct layer_shape *shape_of(const struct output_test *t)
{
    return hparams_layer(&t->b->d->base.config.model->hp, t->layer);
}

static const struct layer_weights *weights_of(const struct output_test *t)
{
    return &t->b->d->base.config.model->layers[t->layer];
}

static int no_memory(struct selftest *b)
{
    return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
}

static int upload(struct selftest *b, const float *data, size_t n, cl_mem *out)
{
    if (!data)
        return 0;
    return memory_buffer(b->d, n * 4, out, "the self-test", b->e) < 0
               ? ERR_DEVICE
               : selftest_put(b, *out, data, n * 4);
}

static int output_init(struct output_test *t)
{
    struct device *d = t->b->d;
    const struct layer_weights *w = weights_of(t);
    const struct matrix *o = &w->o;
    size_t n = (size_t)t->hidden;

    t->chosen = d->base.config.model->hp.n_experts_used;
    t->in = selftest_randoms(t->b, (size_t)o->cols, 2.0f);
    t->row = selftest_randoms(t->b, n, 3.0f);
    t->x = mem_alloc(n, sizeof *t->x);
    t->y = mem_alloc(n, sizeof *t->y);
    t->scores = mem_alloc((size_t)d->base.config.model->hp.n_experts + 1, sizeof *t->scores);
    if (!t->in || !t->row || !t->x || !t->y || !t->scores)
        return no_memory(t->b);
    t->o.m = o;
    t->norm = (struct norm_rows){.x = d->x, .h = d->h, .rows = 1};
    if (memory_buffer(d, o->bytes, &t->o.mem, "the self-test", t->b->e) < 0 ||
        selftest_put(t->b, t->o.mem, o->data, o->bytes) < 0 ||
        upload(t->b, o->bias, n, &t->o.bias) < 0 ||
        upload(t->b, w->expert_norm.weight, n, &t->norm.w) < 0 ||
        upload(t->b, w->expert_norm.bias, n, &t->norm.b) < 0 ||
        memory_routing(d, t->layer, &t->routing, t->b->e) < 0)
        return ERR_DEVICE;
    return 0;
}

static void output_release(struct output_test *t)
{
    memory_release(&t->o.mem);
    memory_release(&t->o.bias);
    memory_release(&t->norm.w);
    memory_release(&t->norm.b);
    memory_routing_release(&t->routing);
    mem_free(t->in);
    mem_free(t->row);
    mem_free(t->x);
    mem_free(t->y);
    mem_free(t->scores);
}

static int put_row(struct output_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    size_t n = (size_t)t->o.m->cols, blocks = n / 32 * sizeof(float);
    struct quantised_rows q;
    int rc = selftest_quantised_init(&q, b, n);

    if (rc == 0) {
        selftest_quantise(&q, t->in);
        if (selftest_put(b, d->oq.q, q.values, q.bytes) < 0 ||
            selftest_put(b, d->oq.d, q.scales, blocks) < 0 ||
            selftest_put(b, d->oq.s, q.sums, blocks) < 0 ||
            selftest_put(b, d->x, t->row, (size_t)t->hidden * 4) < 0)
            rc = ERR_DEVICE;
    }
    selftest_quantised_release(&q);
    return rc;
}

/* By token_output, or by the kernels that do its parts. */
static int run_output(void *ctx, bool joined)
{
    struct output_test *t = ctx;
    struct selftest *b = t->b;
    struct device *d = b->d;
    struct output o = {&t->o, d->x};
    size_t items = (size_t)d->row_items;

    if (joined)
        return jobs_token_output(d, t->layer, &t->o, &t->norm, &t->routing, 0, true, t->first,
                                 b->e);
    if (jobs_multiply_own(d, d->heads_out, &d->oq, 1, &o, 1, true, b->e) < 0)
        return ERR_DEVICE;
    if (shape_of(t)->ffn.kind == FFN_ROUTED && d->token_route)
        return jobs_token_route(d, t->layer, &t->norm, &t->routing, 0, true, b->e);
    if (jobs_norm_args(d, &shape_of(t)->norms, &t->norm, b->e) < 0 ||
        selftest_core(b, CORE_NORM, "norm", items, 1, 1, items) < 0)
        return ERR_DEVICE;
    return shape_of(t)->ffn.kind == FFN_ROUTED
               ? jobs_route(d, t->layer, &t->routing, d->h, 1, 0, true, b->e)
               : 0;
}

/* The row and its norm (y), and the choice. */
static int want_output(struct output_test *t)
{
    if (reference_multiply(t->o.m, t->in, t->y) < 0)
        return no_memory(t->b);
    for (int i = 0; i < t->hidden; i++)
        t->x[i] = t->row[i] + t->y[i];
    reference_norm(t->x, &shape_of(t)->norms, &weights_of(t)->expert_norm, t->hidden, t->y);
    if (shape_of(t)->ffn.kind == FFN_ROUTED) {
        reference_route(t->b->d->base.config.model, t->layer, t->y, t->scores, t->experts,
                        t->weights);
        return 0;
    }
    for (int i = 0; i < t->chosen; i++) {
        t->experts[i] = i ? -1 : 0;
        t->weights[i] = i ? 0.0f : shape_shared_factor(&shape_of(t)->ffn);
    }
    return 0;
}

static int same_values(struct output_test *t, cl_mem mem, const float *want, bool *right)
{
    float *got = mem_alloc((size_t)t->hidden, sizeof *got);
    int rc = got ? selftest_get(t->b, mem, 0, got, (size_t)t->hidden * 4) : no_memory(t->b);

    *right = *right && rc == 0 && memcmp(got, want, (size_t)t->hidden * 4) == 0;
    mem_free(got);
    return rc;
}

static int output_right(struct output_test *t, bool *right)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    int experts[CHOSEN_MOST], tiles[4];
    float weights[CHOSEN_MOST];
    size_t bytes = (size_t)t->chosen * 4;

    if (put_row(t) < 0 || job_begin(d, b->e) < 0 || run_output(t, true) < 0 ||
        job_end(d, b->e) < 0 || job_harvest(d, b->e) < 0 || want_output(t) < 0 ||
        selftest_get(b, d->all_chosen, 0, experts, bytes) < 0 ||
        selftest_get(b, d->all_weights, 0, weights, bytes) < 0 ||
        selftest_get(b, d->tiles, 0, tiles, sizeof tiles) < 0 ||
        same_values(t, d->x, t->x, right) < 0 || same_values(t, d->h, t->y, right) < 0 ||
        selftest_same_quantised(b, &d->hq, t->y, 1, t->hidden, right) < 0)
        return ERR_DEVICE;
    *right = *right && memcmp(experts, t->experts, bytes) == 0 &&
             memcmp(weights, t->weights, bytes) == 0 && tiles[1] == 1 && tiles[2] == t->experts[0];
    return 0;
}

/* The first layer that has such an output projection; -1: none. */
static int find_layer(const struct device *d, enum dtype type)
{
    const struct model *m = d->base.config.model;

    for (int l = 0; l < m->hp.n_layers; l++)
        if (m->layers[l].o.type == type && kernel_set_fuses(d, l) &&
            kernel_set_attends(&hparams_layer(&m->hp, l)->mixer) && kernel_set_token_outputs(d, l))
            return l;
    return -1;
}

int selftest_output(struct selftest *b, enum dtype type)
{
    const struct hparams *hp = &b->d->base.config.model->hp;
    struct output_test t = {
        .b = b, .layer = find_layer(b->d, type), .hidden = b->d->base.config.model->hp.hidden};
    bool right = true;
    int rc;

    if (t.layer < 0 || hp->n_experts_used > CHOSEN_MOST)
        return 0;
    rc = output_init(&t);
    int rows = rc == 0 ? (int)kernel_set_token_rows(b->d, type, TOKEN_OUTPUT) : 1,
        groups = rc == 0 ? (t.o.m->rows + rows - 1) / rows : 1,
        step = groups > TURNS ? groups / TURNS : 1;

    /* where groups run beside each other, what they share by mistake is not wrong every time */
    for (int i = 0; rc == 0 && right && i < TURNS; i++) {
        t.first = i * step % groups;
        rc = output_right(&t, &right);
    }
    t.first = 0;
    if (rc == 0 && !right)
        selftest_wrong(b, "token_output");
    else if (rc == 0)
        rc = selftest_compare(b, "token_output", run_output, &t);
    output_release(&t);
    return rc < 0 ? ERR_DEVICE : 0;
}

int selftest_output_duel(struct selftest *b, enum dtype type, struct type_kernels *other,
                         double *ratio)
{
    struct output_test t = {
        .b = b, .layer = find_layer(b->d, type), .hidden = b->d->base.config.model->hp.hidden};
    int rc;

    if (t.layer < 0 || b->d->base.config.model->hp.n_experts_used > CHOSEN_MOST)
        return 0;
    rc = output_init(&t);
    if (rc == 0)
        rc = put_row(&t);
    if (rc == 0)
        rc = selftest_duel(b, type, other, run_output, &t, ratio);
    output_release(&t);
    return rc;
}
