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

/* Routing, grouping and combination of a few rows. */
int selftest_route(struct selftest *b)
{
    const struct model *m = b->d->base.config.model;
    const struct hparams *hp = &m->hp;
    struct device *d = b->d;
    int n = hp->hidden, used = hp->n_experts_used,
        rows = d->base.config.max_rows < 5 ? d->base.config.max_rows : 5, rc = ERR_DEVICE;
    int count = rows * used, n_tiles = count + 1 < d->max_tiles ? count + 1 : d->max_tiles,
        experts[64], want[64], tiles[4 * 80], entries[2 * 64], seen = 0;
    size_t items = d->wide ? 1 : 64;
    float *h = selftest_randoms(b, (size_t)(rows * n), 1.0f),
          *out = selftest_randoms(b, (size_t)(count * n), 1.0f),
          *x = selftest_randoms(b, (size_t)(rows * n), 1.0f);
    float *got = mem_alloc((size_t)(rows * n), 4),
          *scores = mem_alloc((size_t)(rows * hp->n_experts) * 2, 4), weights[64], want_w[64];
    cl_mem router = NULL;
    bool ok = true;

    if (!h || !out || !x || !got || !scores || count > 64) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    if (memory_router(d, &router, m->layers[0].router, b->e) < 0 ||
        selftest_put(b, d->h, h, (size_t)(rows * n) * 4) < 0 ||
        launch_args(d, d->core[CORE_ROUTE], 0, b->e, "mmmmmmmiiiiifi", d->h, router, d->scores,
                    d->all_chosen, d->all_weights, d->tiles, d->entries, 0, n, hp->n_experts,
                    d->padded_experts, used, (double)hp->common.ffn.router.jitter, 0) < 0 ||
        selftest_core(b, CORE_ROUTE, "route", (size_t)rows * items, 1, 1, items) < 0 ||
        selftest_get(b, d->scores, 0, scores, (size_t)(rows * hp->n_experts) * 4) < 0 ||
        selftest_get(b, d->all_chosen, 0, experts, (size_t)count * 4) < 0 ||
        selftest_get(b, d->all_weights, 0, weights, (size_t)count * 4) < 0)
        goto out;
    for (int r = 0; r < rows; r++)
        reference_route(hp, m->layers[0].router, h + (size_t)r * (size_t)n,
                        scores + (rows + r) * hp->n_experts, want + r * used, want_w + r * used);
    if (memcmp(scores, scores + rows * hp->n_experts, (size_t)(rows * hp->n_experts) * 4) != 0 ||
        memcmp(experts, want, (size_t)count * 4) != 0 ||
        memcmp(weights, want_w, (size_t)count * 4) != 0)
        selftest_wrong(b, "route");
    if (hp->n_experts <= BANK) {
        if (selftest_put(b, d->all_chosen, want, (size_t)count * 4) < 0 ||
            launch_args(d, d->core[CORE_GROUP], 0, b->e, "mmmiiiiii", d->all_chosen, d->tiles,
                        d->entries, rows, used, hp->n_experts, 0, d->tile, n_tiles) < 0 ||
            selftest_core(b, CORE_GROUP, "group_rows", 16, 1, 1, 16) < 0 ||
            selftest_get(b, d->tiles, 0, tiles, (size_t)n_tiles * 16) < 0 ||
            selftest_get(b, d->entries, 0, entries, (size_t)count * 8) < 0)
            goto out;
        for (int t = 0; t < n_tiles; t++)
            for (int i = 0; i < tiles[4 * t + 1] && ok; i++, seen++) {
                int at = tiles[4 * t] + i, row = at >= 0 && at < count ? entries[2 * at] : -1,
                    to = row < 0 ? -1 : entries[2 * at + 1];

                ok = row >= 0 && row < rows && to >= 0 && to < count && to % rows == row &&
                     want[row * used + to / rows] == tiles[4 * t + 2];
            }
        if (!ok || seen != count)
            selftest_wrong(b, "group_rows");
    }
    if (selftest_put(b, d->out, out, (size_t)(count * n) * 4) < 0 ||
        selftest_put(b, d->all_weights, want_w, (size_t)count * 4) < 0 ||
        selftest_put(b, d->x, x, (size_t)(rows * n) * 4) < 0 ||
        launch_args(d, d->core[CORE_COMBINE], 0, b->e, "mmmiiii", d->out, d->all_weights, d->x, 0,
                    rows, used, n) < 0 ||
        selftest_core(b, CORE_COMBINE, "combine", (size_t)(rows * n), 1, 1, 32) < 0 ||
        selftest_get(b, d->x, 0, got, (size_t)(rows * n) * 4) < 0)
        goto out;
    for (int r = 0; r < rows; r++)
        reference_combine(out + r * n, (size_t)(rows * n), want_w + r * used, used, n, x + r * n);
    ok = memcmp(got, x, (size_t)(rows * n) * 4) == 0;
    if (!ok)
        selftest_wrong(b, "combine");
    rc = 0;
out:
    memory_release(&router);
    mem_free(h);
    mem_free(out);
    mem_free(x);
    mem_free(got);
    mem_free(scores);
    return rc;
}
