/* Self-test of what stands between the matrices: norm, quantisation of rows, the order of commands,
 * routing, combination. */
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
    const struct norm_weights *w = &m->layers[0].attention_norm;
    struct device *d = b->d;
    int n = m->hp.hidden, rows = d->base.config.max_rows < 3 ? d->base.config.max_rows : 3,
        rc = ERR_DEVICE;
    size_t count = (size_t)rows * (size_t)n, items = d->wide ? 1 : 64;
    float *x = selftest_randoms(b, count, 3.0f), *want = mem_alloc(count, 4),
          *got = mem_alloc(count, 4), *first = mem_alloc(count, 4);
    cl_mem mw = NULL, mb = NULL;
    bool same = true;

    for (int r = 0; x && want && r < rows; r++)
        reference_norm(x + (size_t)r * (size_t)n, w, n, m->hp.common.norms.eps,
                       want + (size_t)r * (size_t)n);
    if (!x || !want || !got || !first || upload(b, w->weight, (size_t)n, &mw) < 0 ||
        upload(b, w->bias, (size_t)n, &mb) < 0 || selftest_put(b, d->x, x, count * 4) < 0 ||
        launch_args(d, d->core[CORE_NORM], 0, b->e, "mmmmmmmiffi", d->x, mw, mb, d->h, d->hq.q,
                    d->hq.d, d->hq.s, n, (double)(1.0f / (float)n), (double)m->hp.common.norms.eps,
                    mb ? 1 : 0) < 0 ||
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
    /* The way every job goes: copy, kernel, copy, none of them awaited. Some drivers get the
     * kernels right and this wrong. */
    memset(got, 0, count * 4);
    if (job_begin(d, b->e) < 0 || launch_write(d, d->x, 0, x, count * 4, b->e) < 0 ||
        launch_args(d, d->core[CORE_NORM], 0, b->e, "mmmmmmmiffi", d->x, mw, mb, d->h, d->hq.q,
                    d->hq.d, d->hq.s, n, (double)(1.0f / (float)n), (double)m->hp.common.norms.eps,
                    mb ? 1 : 0) < 0 ||
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

#define ROUTE_ROWS 5
#define ROUTE_MOST 64 /* experts that the rows use together */

/* Some rows and what the reference says of them: the kernels after routing are given that. */
struct route_test {
    struct selftest *b;
    const struct hparams *hp;
    int rows, used, count; /* count: of all rows together */
    int want[ROUTE_MOST];
    float weights[ROUTE_MOST];
};

static int no_memory(struct selftest *b)
{
    return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
}

/* The kernel's routing of rows h: scores to got, experts and weights; right: as the reference's. */
static int run_route(struct route_test *t, const float *h, cl_mem *router, float *got, bool *right)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    const float *w = d->base.config.model->layers[0].router;
    int n = t->hp->hidden, n_scores = t->rows * t->hp->n_experts, experts[ROUTE_MOST];
    float weights[ROUTE_MOST], *want = got + n_scores;
    size_t items = d->wide ? 1 : 64;

    if (memory_router(d, router, w, b->e) < 0 ||
        selftest_put(b, d->h, h, (size_t)(t->rows * n) * 4) < 0 ||
        launch_args(d, d->core[CORE_ROUTE], 0, b->e, "mmmmmmmiiiiifi", d->h, *router, d->scores,
                    d->all_chosen, d->all_weights, d->tiles, d->entries, 0, n, t->hp->n_experts,
                    d->padded_experts, t->used, (double)t->hp->common.ffn.router.jitter, 0) < 0 ||
        selftest_core(b, CORE_ROUTE, "route", (size_t)t->rows * items, 1, 1, items) < 0 ||
        selftest_get(b, d->scores, 0, got, (size_t)n_scores * 4) < 0 ||
        selftest_get(b, d->all_chosen, 0, experts, (size_t)t->count * 4) < 0 ||
        selftest_get(b, d->all_weights, 0, weights, (size_t)t->count * 4) < 0)
        return ERR_DEVICE;
    for (int r = 0; r < t->rows; r++)
        reference_route(t->hp, w, h + (size_t)r * (size_t)n, want + r * t->hp->n_experts,
                        t->want + r * t->used, t->weights + r * t->used);
    *right = memcmp(got, want, (size_t)n_scores * 4) == 0 &&
             memcmp(experts, t->want, (size_t)t->count * 4) == 0 &&
             memcmp(weights, t->weights, (size_t)t->count * 4) == 0;
    return 0;
}

static int test_route(struct route_test *t)
{
    float *h = selftest_randoms(t->b, (size_t)(t->rows * t->hp->hidden), 1.0f),
          *scores = mem_alloc((size_t)(t->rows * t->hp->n_experts) * 2, sizeof *scores);
    cl_mem router = NULL;
    bool right = false;
    int rc = h && scores ? run_route(t, h, &router, scores, &right) : no_memory(t->b);

    if (rc == 0 && !right)
        selftest_wrong(t->b, "route");
    memory_release(&router);
    mem_free(h);
    mem_free(scores);
    return rc;
}

/* Every (row, slot) stands once in a tile of the expert that it chose. */
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

    if (t->hp->n_experts > BANK)
        return 0;
    if (selftest_put(b, d->all_chosen, t->want, (size_t)t->count * 4) < 0 ||
        launch_args(d, d->core[CORE_GROUP], 0, b->e, "mmmiiiiii", d->all_chosen, d->tiles,
                    d->entries, t->rows, t->used, t->hp->n_experts, 0, d->tile, n_tiles) < 0 ||
        selftest_core(b, CORE_GROUP, "group_rows", 16, 1, 1, 16) < 0 ||
        selftest_get(b, d->tiles, 0, tiles, (size_t)n_tiles * 16) < 0 ||
        selftest_get(b, d->entries, 0, entries, (size_t)t->count * 8) < 0)
        return ERR_DEVICE;
    if (!tiles_right(t, tiles, n_tiles, entries))
        selftest_wrong(b, "group_rows");
    return 0;
}

static int test_combine(struct route_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    int n = t->hp->hidden;
    size_t values = (size_t)(t->rows * n), outputs = (size_t)(t->count * n);
    float *out = selftest_randoms(b, outputs, 1.0f), *x = selftest_randoms(b, values, 1.0f),
          *got = mem_alloc(values, sizeof *got);
    int rc = out && x && got ? 0 : no_memory(b);

    if (rc == 0 && (selftest_put(b, d->out, out, outputs * 4) < 0 ||
                    selftest_put(b, d->all_weights, t->weights, (size_t)t->count * 4) < 0 ||
                    selftest_put(b, d->x, x, values * 4) < 0 ||
                    launch_args(d, d->core[CORE_COMBINE], 0, b->e, "mmmiiii", d->out,
                                d->all_weights, d->x, 0, t->rows, t->used, n) < 0 ||
                    selftest_core(b, CORE_COMBINE, "combine", values, 1, 1, 32) < 0 ||
                    selftest_get(b, d->x, 0, got, values * 4) < 0))
        rc = ERR_DEVICE;
    for (int r = 0; r < t->rows && rc == 0; r++)
        reference_combine(out + r * n, values, t->weights + r * t->used, t->used, n, x + r * n);
    if (rc == 0 && memcmp(got, x, values * 4) != 0)
        selftest_wrong(b, "combine");
    mem_free(out);
    mem_free(x);
    mem_free(got);
    return rc;
}

/* Routing, grouping and combination of a few rows. */
int selftest_route(struct selftest *b)
{
    const struct device_config *c = &b->d->base.config;
    struct route_test t = {.b = b,
                           .hp = &c->model->hp,
                           .rows = c->max_rows < ROUTE_ROWS ? c->max_rows : ROUTE_ROWS,
                           .used = c->model->hp.n_experts_used};

    t.count = t.rows * t.used;
    if (t.count > ROUTE_MOST)
        return no_memory(b);
    return test_route(&t) < 0 || test_group(&t) < 0 || test_combine(&t) < 0 ? ERR_DEVICE : 0;
}
