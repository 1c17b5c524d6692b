/* Every kernel against the reference of the numeric contract (engine/device/numerics.h), on the shapes and weights of the model, at the
 * first use of a driver; drivers do miscompute. The verdict is kept beside the compiled programs. Engine thread, inside open: this may
 * allocate and wait. A wrong kernel takes out of use what needs it, and is named in the log. */
#include "gpu/internal.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS_M 64                /* rows of a matrix compared */
#define TOKENS_MANY 11           /* a whole tile and a part of one */
#define WRONG_MAX 24

struct verdict {
    int n;
    char wrong[WRONG_MAX][48];   /* kernel names */
};

struct bench {                   /* what a test works with */
    struct device *d;
    struct error *e;
    unsigned seed;
    struct verdict *v;
};

static float uniform(struct bench *b)
{
    b->seed = b->seed * 1664525u + 1013904223u;
    return (float)(int)(b->seed >> 8) / 8388608.0f - 1.0f;
}

static float *randoms(struct bench *b, size_t n, float scale)
{
    float *x = mem_alloc(n, sizeof *x);

    for (size_t i = 0; x && i < n; i++)
        x[i] = uniform(b) * scale;
    return x;
}

static void wrong(struct bench *b, const char *name)
{
    if (b->v->n < WRONG_MAX)
        snprintf(b->v->wrong[b->v->n++], sizeof b->v->wrong[0], "%s", name);
}

static bool is_wrong(const struct verdict *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->wrong[i], name) == 0)
            return true;
    return false;
}

static int put(struct bench *b, cl_mem mem, const void *data, size_t bytes)
{
    return cl_check(b->d, clEnqueueWriteBuffer(b->d->queue, mem, CL_TRUE, 0, bytes, data, 0, NULL, NULL), "self-test", b->e);
}

static int get(struct bench *b, cl_mem mem, size_t offset, void *data, size_t bytes)
{
    return cl_check(b->d, clEnqueueReadBuffer(b->d->queue, mem, CL_TRUE, offset, bytes, data, 0, NULL, NULL), "self-test", b->e);
}

static int core_run(struct bench *b, enum core_kernel k, const char *name, size_t x, size_t y, size_t z, size_t local)
{
    size_t global[3] = {(x + local - 1) / local * local, y, z}, items[3] = {local, 1, 1};

    return launch(b->d, b->d->core[k], name, 3, global, items, b->e);
}

/* Quantised rows on the device against rule 1 of x. */
static int same_quantised(struct bench *b, const struct rows_q *q, const float *x, int rows, int cols, bool *same)
{
    size_t n = (size_t)rows * (size_t)cols, blocks = n / 32;
    char *got = mem_alloc(n, 4);
    float *d = mem_alloc(blocks, 8), *s = d ? d + blocks : NULL;
    int rc = got && d ? 0 : error_set(b->e, ERR_MEMORY, "out of memory");

    if (rc == 0 && (get(b, q->q, 0, got, n * (b->d->dot8 ? 1 : 4)) < 0 || get(b, q->d, 0, d, blocks * 4) < 0 || get(b, q->s, 0, s, blocks * 4) < 0))
        rc = ERR_DEVICE;
    for (size_t k = 0; k < blocks && rc == 0; k++) {
        int8_t want[32];
        int32_t sum;
        float scale = num_quantise_block(x + k * 32, want, &sum);

        *same = *same && num_bits(scale) == num_bits(d[k]) && s[k] == (float)sum;
        for (size_t i = 0; i < 32; i++)
            *same = *same && (b->d->dot8 ? ((int8_t *)got)[k * 32 + i] == want[i] : ((float *)got)[k * 32 + i] == (float)want[i]);
    }
    mem_free(got);
    mem_free(d);
    return rc;
}

/* Rule 5 in plain C. */
static void norm_reference(const float *x, const struct norm_weights *w, int n, float eps, float *y)
{
    float lanes[16] = {0}, inv_n = 1.0f / (float)n, mean, r;

    for (int i = 0; i < n; i++)
        lanes[i % 16] = lanes[i % 16] + x[i];
    mean = num_fold(lanes) * inv_n;
    memset(lanes, 0, sizeof lanes);
    for (int i = 0; i < n; i++)
        lanes[i % 16] = fmaf(x[i] - mean, x[i] - mean, lanes[i % 16]);
    r = num_rsqrt(fmaf(num_fold(lanes), inv_n, eps));
    for (int i = 0; i < n; i++)
        y[i] = w->bias ? fmaf((x[i] - mean) * r, w->weight[i], w->bias[i]) : ((x[i] - mean) * r) * w->weight[i];
}

static int upload(struct bench *b, const float *data, size_t n, cl_mem *out)
{
    if (!data) {
        *out = NULL;
        return 0;
    }
    return memory_buffer(b->d, n * 4, out, "the self-test", b->e) < 0 ? ERR_DEVICE : put(b, *out, data, n * 4);
}

static int test_norm(struct bench *b)
{
    const struct model *m = b->d->base.config.model;
    const struct norm_weights *w = &m->layers[0].attention_norm;
    struct device *d = b->d;
    int n = m->hp.hidden, rows = d->base.config.max_rows < 3 ? d->base.config.max_rows : 3, rc = ERR_DEVICE;
    size_t count = (size_t)rows * (size_t)n, items = d->wide ? 1 : 64;
    float *x = randoms(b, count, 3.0f), *want = mem_alloc(count, 4), *got = mem_alloc(count, 4), *first = mem_alloc(count, 4);
    cl_mem mw = NULL, mb = NULL;
    bool same = true;

    for (int r = 0; x && want && r < rows; r++)
        norm_reference(x + (size_t)r * (size_t)n, w, n, m->hp.norm_eps, want + (size_t)r * (size_t)n);
    if (!x || !want || !got || !first || upload(b, w->weight, (size_t)n, &mw) < 0 || upload(b, w->bias, (size_t)n, &mb) < 0 || put(b, d->x, x, count * 4) < 0 ||
        launch_args(d, d->core[CORE_NORM], 0, b->e, "mmmmmmmiffi", d->x, mw, mb, d->h, d->hq.q, d->hq.d, d->hq.s, n, (double)(1.0f / (float)n),
                    (double)m->hp.norm_eps, mb ? 1 : 0) < 0 ||
        core_run(b, CORE_NORM, "norm", (size_t)rows * items, 1, 1, items) < 0 || get(b, d->h, 0, got, count * 4) < 0 ||
        same_quantised(b, &d->hq, got, rows, n, &same) < 0)
        goto out;
    memcpy(first, got, count * 4);
    if (memcmp(got, want, count * 4) != 0)
        wrong(b, "norm");
    if (launch_args(d, d->core[CORE_QUANTISE], 0, b->e, "mmmmi", d->x, d->hq.q, d->hq.d, d->hq.s, (int)count / 32) < 0 ||
        core_run(b, CORE_QUANTISE, "quantise", count / 32, 1, 1, 32) < 0 || same_quantised(b, &d->hq, x, rows, n, &same) < 0)
        goto out;
    if (!same)
        wrong(b, "quantise");
    /* The way every job goes: copy, kernel, copy, none of them awaited. Some drivers get the kernels right and this wrong. */
    memset(got, 0, count * 4);
    if (job_begin(d, b->e) < 0 || launch_write(d, d->x, 0, x, count * 4, b->e) < 0 ||
        launch_args(d, d->core[CORE_NORM], 0, b->e, "mmmmmmmiffi", d->x, mw, mb, d->h, d->hq.q, d->hq.d, d->hq.s, n, (double)(1.0f / (float)n),
                    (double)m->hp.norm_eps, mb ? 1 : 0) < 0 ||
        core_run(b, CORE_NORM, "norm", (size_t)rows * items, 1, 1, items) < 0 || launch_read(d, d->h, 0, got, count * 4, b->e) < 0 ||
        job_end(d, b->e) < 0 || job_harvest(d, b->e) < 0)
        goto out;
    if (memcmp(got, first, count * 4) != 0)
        wrong(b, "queue");
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

/* Rows of K and V as the cache keeps them: rounded, in the exchange layout. */
struct cache_copy {
    int n, tokens, k_bytes, v_bytes;     /* n: values of one token's K */
    char *rows;
};

static float cached(const struct cache_copy *c, int token, int v, int i)
{
    const char *p = c->rows + (size_t)token * (size_t)(c->n * (c->k_bytes + c->v_bytes)) + (v ? c->n * c->k_bytes : 0);
    uint16_t h;
    float x;

    if ((v ? c->v_bytes : c->k_bytes) == 2) {
        memcpy(&h, p + 2 * i, 2);
        return num_from_f16(h);
    }
    memcpy(&x, p + 4 * i, 4);
    return x;
}

static void cache_set(struct cache_copy *c, int token, int v, int i, float x)
{
    char *p = c->rows + (size_t)token * (size_t)(c->n * (c->k_bytes + c->v_bytes)) + (v ? c->n * c->k_bytes : 0);
    uint16_t h = num_to_f16(x);

    if ((v ? c->v_bytes : c->k_bytes) == 2)
        memcpy(p + 2 * i, &h, 2);
    else
        memcpy(p + 4 * i, &x, 4);
}

/* Rule 7 for one head at one position, q already rotated and scaled. */
static void attend_reference(const struct cache_copy *c, const float *q, int kv_head, int dim, int token, int window, float *out)
{
    float sums[64], tops[64], top = -INFINITY, total = 0.0f, key[512], *part = mem_alloc((size_t)(token / 256 + 1) * (size_t)dim, 4), p[256];
    int begin = window && token - window + 1 > 0 ? token - window + 1 : 0, c0 = begin / 256, c1 = token / 256;

    for (int ch = c0; part && ch <= c1; ch++) {
        int lo = begin > ch * 256 ? begin : ch * 256, hi = token + 1 < ch * 256 + 256 ? token + 1 : ch * 256 + 256;
        float lanes[16] = {0};

        tops[ch] = -INFINITY;
        for (int t = lo; t < hi; t++) {
            for (int i = 0; i < dim; i++)
                key[i] = cached(c, t, 0, kv_head * dim + i);
            p[t - ch * 256] = num_dot(q, key, dim);
            tops[ch] = p[t - ch * 256] > tops[ch] ? p[t - ch * 256] : tops[ch];
        }
        for (int t = lo; t < hi; t++) {
            p[t - ch * 256] = num_exp(p[t - ch * 256] - tops[ch]);
            lanes[t % 16] = lanes[t % 16] + p[t - ch * 256];
            for (int i = 0; i < dim; i++)
                part[ch * dim + i] = fmaf(p[t - ch * 256], cached(c, t, 1, kv_head * dim + i), part[ch * dim + i]);
        }
        sums[ch] = num_fold(lanes);
        top = tops[ch] > top ? tops[ch] : top;
    }
    memset(out, 0, (size_t)dim * 4);
    for (int ch = c0; part && ch <= c1; ch++) {
        float f = num_exp(tops[ch] - top);

        total = fmaf(sums[ch], f, total);
        for (int i = 0; i < dim; i++)
            out[i] = fmaf(part[ch * dim + i], f, out[i]);
    }
    for (int i = 0; i < dim; i++)
        out[i] = out[i] * num_recip(total);
    mem_free(part);
}

static void rotate_reference(const float *x, int dim, int rot, const float *cs, const float *sn, float scale, float *y)
{
    int half = rot / 2;

    memcpy(y, x, (size_t)dim * 4);
    for (int i = 0; i < half; i++) {
        y[i] = fmaf(x[i], cs[i], -(x[i + half] * sn[i]));
        y[i + half] = fmaf(x[i + half], cs[i], x[i] * sn[i]);
    }
    for (int i = 0; i < dim; i++)
        y[i] = y[i] * scale;
}

static int test_attention(struct bench *b)
{
    const struct hparams *hp = &b->d->base.config.model->hp;
    struct device *d = b->d;
    int dim = hp->head_dim, heads = hp->n_heads, kvh = hp->n_kv_heads, half = hp->rope_dims / 2, rc = ERR_DEVICE;
    int rows = d->base.config.max_rows < 3 ? d->base.config.max_rows : 3, tokens = d->base.config.context < 275 ? d->base.config.context : 275;
    int pos = tokens - rows, window = hp->sliding_window, first = window && pos - window + 1 > 0 ? (pos - window + 1) / 256 : 0;
    int last = (tokens - 1) / 256;
    struct cache_copy c = {kvh * dim, tokens, d->base.config.kv_k == KV_F16 ? 2 : 4, d->base.config.kv_v == KV_F16 ? 2 : 4, NULL};
    size_t row_bytes = (size_t)(c.n * (c.k_bytes + c.v_bytes)), cache = (size_t)c.n * (size_t)d->stride, items = d->wide ? 1 : 64;
    float *q = randoms(b, (size_t)(rows * heads * dim), 2.0f), *k = randoms(b, (size_t)(rows * c.n), 2.0f), *v = randoms(b, (size_t)(rows * c.n), 2.0f);
    float *table = randoms(b, (size_t)(2 * tokens * half) + 1, 1.0f), *got = mem_alloc((size_t)(rows * heads * dim), 4), rotated[512], want[512];
    char *back = mem_alloc((size_t)tokens, row_bytes);
    cl_mem mk = NULL, mv = NULL;
    bool rope_ok = true, attend_ok = true, copy_ok, merge_ok = true;

    c.rows = mem_alloc((size_t)tokens, row_bytes);
    if (!q || !k || !v || !table || !got || !back || !c.rows || dim > 512) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (int t = 0; t < tokens; t++)
        for (int i = 0; i < c.n; i++) {
            cache_set(&c, t, 0, i, uniform(b) * 2.0f);
            cache_set(&c, t, 1, i, uniform(b) * 2.0f);
        }
    if (memory_buffer(d, cache * (size_t)c.k_bytes, &mk, "the self-test", b->e) < 0 || memory_buffer(d, cache * (size_t)c.v_bytes, &mv, "the self-test", b->e) < 0 ||
        put(b, d->q, q, (size_t)(rows * heads * dim) * 4) < 0 || put(b, d->k, k, (size_t)(rows * c.n) * 4) < 0 ||
        put(b, d->v, v, (size_t)(rows * c.n) * 4) < 0 || (half && put(b, d->rope_cos, table, (size_t)(tokens * half) * 4) < 0) ||
        (half && put(b, d->rope_sin, table + tokens * half, (size_t)(tokens * half) * 4) < 0))
        goto out;
    for (int t = 0; t < tokens; t += rows) {
        int n = tokens - t < rows ? tokens - t : rows;

        if (put(b, d->kv_rows, c.rows + (size_t)t * row_bytes, (size_t)n * row_bytes) < 0 ||
            launch_args(d, d->core[CORE_KV], 0, b->e, "mmmiiiiii", mk, mv, d->kv_rows, kvh, dim, t, n, d->stride, 1) < 0 ||
            core_run(b, CORE_KV, "kv_copy", (size_t)(2 * c.n), (size_t)n, 1, 32) < 0)
            goto out;
    }
    if (launch_args(d, d->core[CORE_ROPE], 0, b->e, "mmmmmmmmiiiiiif", d->q, d->k, d->v, d->qr, mk, mv, d->rope_cos, d->rope_sin, heads, kvh, dim,
                    hp->rope_dims, pos, d->stride, (double)d->score_scale) < 0 ||
        core_run(b, CORE_ROPE, "rope", (size_t)dim, (size_t)(heads + 2 * kvh), (size_t)rows, 32) < 0 ||
        get(b, d->qr, 0, got, (size_t)(rows * heads * dim) * 4) < 0)
        goto out;
    for (int r = 0; r < rows; r++) {
        const float *cs = table + (pos + r) * half, *sn = table + (tokens + pos + r) * half;

        for (int h = 0; h < heads; h++) {
            rotate_reference(q + (r * heads + h) * dim, dim, hp->rope_dims, cs, sn, d->score_scale, rotated);
            rope_ok = rope_ok && memcmp(got + (r * heads + h) * dim, rotated, (size_t)dim * 4) == 0;
            memcpy(q + (r * heads + h) * dim, rotated, (size_t)dim * 4);
        }
        for (int h = 0; h < kvh; h++) {
            rotate_reference(k + (r * kvh + h) * dim, dim, hp->rope_dims, cs, sn, 1.0f, rotated);
            for (int i = 0; i < dim; i++) {
                cache_set(&c, pos + r, 0, h * dim + i, rotated[i]);
                cache_set(&c, pos + r, 1, h * dim + i, v[(r * kvh + h) * dim + i]);
            }
        }
    }
    for (int t = 0; t < tokens; t += rows) {
        int n = tokens - t < rows ? tokens - t : rows;

        if (launch_args(d, d->core[CORE_KV], 0, b->e, "mmmiiiiii", mk, mv, d->kv_rows, kvh, dim, t, n, d->stride, 0) < 0 ||
            core_run(b, CORE_KV, "kv_copy", (size_t)(2 * c.n), (size_t)n, 1, 32) < 0 ||
            get(b, d->kv_rows, 0, back + (size_t)t * row_bytes, (size_t)n * row_bytes) < 0)
            goto out;
    }
    copy_ok = memcmp(back, c.rows, (size_t)pos * row_bytes) == 0;
    rope_ok = rope_ok && memcmp(back + (size_t)pos * row_bytes, c.rows + (size_t)pos * row_bytes, (size_t)rows * row_bytes) == 0;
    if (put(b, d->qr, q, (size_t)(rows * heads * dim) * 4) < 0 ||
        launch_args(d, d->core[CORE_ATTEND], 0, b->e, "mmmmiiiiiiiii", d->qr, mk, mv, d->part, heads, kvh, dim, pos, 0, window, d->stride, first,
                    last - first + 1) < 0 ||
        core_run(b, CORE_ATTEND, "attend", (size_t)(last - first + 1) * items, (size_t)heads, (size_t)rows, items) < 0 ||
        launch_args(d, d->core[CORE_MERGE], 0, b->e, "mmmmmiiiiiiii", d->part, d->heads_out, d->oq.q, d->oq.d, d->oq.s, heads, dim, pos, 0, rows,
                    window, first, last - first + 1) < 0 ||
        core_run(b, CORE_MERGE, "attend_merge", (size_t)(heads * dim / 32), (size_t)rows, 1, 32) < 0 ||
        get(b, d->heads_out, 0, got, (size_t)(rows * heads * dim) * 4) < 0 || same_quantised(b, &d->oq, got, rows, heads * dim, &merge_ok) < 0)
        goto out;
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) {
            attend_reference(&c, q + (r * heads + h) * dim, h / (heads / kvh), dim, pos + r, window, want);
            attend_ok = attend_ok && memcmp(got + (r * heads + h) * dim, want, (size_t)dim * 4) == 0;
        }
    if (!rope_ok)
        wrong(b, "rope");
    if (!attend_ok || !merge_ok)
        wrong(b, "attend");
    if (!copy_ok)
        wrong(b, "kv_copy");
    rc = 0;
out:
    memory_release(&mk);
    memory_release(&mv);
    mem_free(q);
    mem_free(k);
    mem_free(v);
    mem_free(table);
    mem_free(got);
    mem_free(back);
    mem_free(c.rows);
    return rc;
}

/* Routing, grouping and combination of a few rows. */
static int test_route(struct bench *b)
{
    const struct model *m = b->d->base.config.model;
    const struct hparams *hp = &m->hp;
    struct device *d = b->d;
    int n = hp->hidden, used = hp->n_experts_used, rows = d->base.config.max_rows < 5 ? d->base.config.max_rows : 5, rc = ERR_DEVICE;
    int count = rows * used, n_tiles = count + 1 < d->max_tiles ? count + 1 : d->max_tiles, experts[64], want[64], tiles[4 * 80], entries[2 * 64], seen = 0;
    size_t items = d->wide ? 1 : 64;
    float *h = randoms(b, (size_t)(rows * n), 1.0f), *out = randoms(b, (size_t)(count * n), 1.0f), *x = randoms(b, (size_t)(rows * n), 1.0f);
    float *got = mem_alloc((size_t)(rows * n), 4), *scores = mem_alloc((size_t)(rows * hp->n_experts) * 2, 4), weights[64], want_w[64];
    cl_mem router = NULL;
    bool ok = true;

    if (!h || !out || !x || !got || !scores || count > 64) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    if (memory_router(d, &router, m->layers[0].router, b->e) < 0 || put(b, d->h, h, (size_t)(rows * n) * 4) < 0 ||
        launch_args(d, d->core[CORE_ROUTE], 0, b->e, "mmmmmmmiiiiifi", d->h, router, d->scores, d->all_chosen, d->all_weights, d->tiles, d->entries, 0,
                    n, hp->n_experts, d->padded_experts, used, (double)hp->router_jitter, 0) < 0 ||
        core_run(b, CORE_ROUTE, "route", (size_t)rows * items, 1, 1, items) < 0 || get(b, d->scores, 0, scores, (size_t)(rows * hp->n_experts) * 4) < 0 ||
        get(b, d->all_chosen, 0, experts, (size_t)count * 4) < 0 || get(b, d->all_weights, 0, weights, (size_t)count * 4) < 0)
        goto out;
    for (int r = 0; r < rows; r++) {
        float *s = scores + (rows + r) * hp->n_experts;

        for (int e = 0; e < hp->n_experts; e++)
            s[e] = num_dot(m->layers[0].router + (size_t)e * (size_t)n, h + (size_t)r * (size_t)n, n);
        num_sparsemixer(s, hp->n_experts, hp->router_jitter, used, want + r * used, want_w + r * used);
    }
    if (memcmp(scores, scores + rows * hp->n_experts, (size_t)(rows * hp->n_experts) * 4) != 0 || memcmp(experts, want, (size_t)count * 4) != 0 ||
        memcmp(weights, want_w, (size_t)count * 4) != 0)
        wrong(b, "route");
    if (hp->n_experts <= BANK) {
        if (put(b, d->all_chosen, want, (size_t)count * 4) < 0 ||
            launch_args(d, d->core[CORE_GROUP], 0, b->e, "mmmiiiiii", d->all_chosen, d->tiles, d->entries, rows, used, hp->n_experts, 0, TILE, n_tiles) < 0 ||
            core_run(b, CORE_GROUP, "group_rows", 16, 1, 1, 16) < 0 || get(b, d->tiles, 0, tiles, (size_t)n_tiles * 16) < 0 ||
            get(b, d->entries, 0, entries, (size_t)count * 8) < 0)
            goto out;
        for (int t = 0; t < n_tiles; t++)
            for (int i = 0; i < tiles[4 * t + 1] && ok; i++, seen++) {
                int at = tiles[4 * t] + i, row = at >= 0 && at < count ? entries[2 * at] : -1, to = row < 0 ? -1 : entries[2 * at + 1];

                ok = row >= 0 && row < rows && to >= 0 && to < count && to % rows == row && want[row * used + to / rows] == tiles[4 * t + 2];
            }
        if (!ok || seen != count)
            wrong(b, "group_rows");
    }
    if (put(b, d->out, out, (size_t)(count * n) * 4) < 0 || put(b, d->all_weights, want_w, (size_t)count * 4) < 0 || put(b, d->x, x, (size_t)(rows * n) * 4) < 0 ||
        launch_args(d, d->core[CORE_COMBINE], 0, b->e, "mmmiiii", d->out, d->all_weights, d->x, 0, rows, used, n) < 0 ||
        core_run(b, CORE_COMBINE, "combine", (size_t)(rows * n), 1, 1, 32) < 0 || get(b, d->x, 0, got, (size_t)(rows * n) * 4) < 0)
        goto out;
    ok = true;
    for (int i = 0; i < rows * n; i++) {
        float acc = want_w[i / n * used] * out[i];

        for (int s = 1; s < used; s++)
            acc = fmaf(want_w[i / n * used + s], out[s * rows * n + i], acc);
        ok = ok && num_bits(x[i] + acc) == num_bits(got[i]);
    }
    if (!ok)
        wrong(b, "combine");
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

/* Row r of a matrix against x: rule 2 with quantised x, or plain F32 (with the sum of magnitudes for the tolerance). */
static float dot_reference(const struct matrix *m, int r, const float *x, const int8_t *q, const float *d, double *size)
{
    const uint8_t *p = m->data;
    int n = m->cols / 32, bytes = dtype_info(m->type)->bytes;
    float quarter[4];
    double sum = 0;

    if (!m->width) {
        p += (size_t)r * (size_t)m->cols * (size_t)bytes;
        *size = 0;
        for (int c = 0; c < m->cols; c++) {
            uint16_t h;
            float w;

            if (m->type == DTYPE_F32) {
                memcpy(&w, p + 4 * c, 4);
            } else {
                memcpy(&h, p + 2 * c, 2);
                w = m->type == DTYPE_F16 ? num_from_f16(h) : num_from_bf16(h);
            }
            sum += (double)w * (double)x[c];
            *size += fabs((double)w * (double)x[c]);
        }
        return (float)sum;
    }
    p += (size_t)(r / m->width) * (size_t)n * (size_t)(bytes * m->width);
    r %= m->width;
    for (int i = 0; i < 4; i++) {
        quarter[i] = 0.0f;
        for (int k = (int)((int64_t)i * n / 4); k < (int)((int64_t)(i + 1) * n / 4); k++) {
            const uint8_t *blk = p + (size_t)k * (size_t)(bytes * m->width), *w = blk + 2 * m->width;
            int s = 0;
            uint16_t h;

            memcpy(&h, blk + 2 * r, 2);
            for (int c = 0; c < 32; c++) {
                int v = m->type == DTYPE_Q8_0 ? w[4 * (c / 4 * m->width + r) + c % 4] - 128
                                              : (w[4 * (c % 16 / 4 * m->width + r) + c % 4] >> (c < 16 ? 0 : 4) & 15) - 8;

                s += v * q[k * 32 + c];
            }
            quarter[i] = fmaf((float)s, num_from_f16(h) * d[k], quarter[i]);
        }
    }
    *size = 0;
    return (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
}

static bool near(float got, float want, double size)
{
    return size == 0 ? num_bits(got) == num_bits(want) : fabs((double)got - (double)want) <= 1e-5 * size;
}

/* The first rows of a matrix as a part of its own. */
static int prefix(struct bench *b, const struct matrix *m, int rows, struct matrix *out, cl_mem *mem)
{
    *out = *m;
    out->rows = m->rows < rows ? m->rows : rows;
    out->bytes = m->width ? m->bytes / (size_t)((m->rows + m->width - 1) / m->width) * (size_t)((out->rows + m->width - 1) / m->width)
                          : m->bytes / (size_t)m->rows * (size_t)out->rows;
    out->bias = NULL;
    return memory_buffer(b->d, out->bytes, mem, "the self-test", b->e) < 0 ? ERR_DEVICE : put(b, *mem, out->data, out->bytes);
}

struct inputs {                  /* rows of activations, on the host and on the device */
    float *x, *d;
    int8_t *q;
};

static int inputs_make(struct bench *b, struct inputs *in, int rows, int cols)
{
    struct device *d = b->d;
    size_t n = (size_t)rows * (size_t)cols;
    char *bytes = mem_alloc(n, 4);
    float *s = mem_alloc(n / 32, 4);
    int rc = ERR_DEVICE;

    in->x = randoms(b, n, 2.0f);
    in->d = mem_alloc(n / 32, 4);
    in->q = mem_alloc(n, 1);
    if (!in->x || !in->d || !in->q || !bytes || !s) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (size_t k = 0; k < n / 32; k++) {
        int32_t sum;

        in->d[k] = num_quantise_block(in->x + k * 32, in->q + k * 32, &sum);
        s[k] = (float)sum;
    }
    for (size_t i = 0; i < n; i++)
        if (d->dot8)
            bytes[i] = in->q[i];
        else
            ((float *)bytes)[i] = in->q[i];
    if (put(b, d->hq.q, bytes, n * (d->dot8 ? 1 : 4)) < 0 || put(b, d->hq.d, in->d, n / 32 * 4) < 0 || put(b, d->hq.s, s, n / 32 * 4) < 0 ||
        put(b, d->h, in->x, n * 4) < 0)
        goto out;
    rc = 0;
out:
    mem_free(bytes);
    mem_free(s);
    return rc;
}

static void inputs_release(struct inputs *in)
{
    mem_free(in->x);
    mem_free(in->d);
    mem_free(in->q);
}

static void name_type(char *out, size_t size, const char *kernel, enum dtype type, int many)
{
    snprintf(out, size, "%s %s, %s", kernel, dtype_info(type)->word, many ? "many tokens" : "one token");
}

/* A matrix of the model with `hidden` columns. */
static int test_matmul(struct bench *b, const struct matrix *m, int many)
{
    struct device *d = b->d;
    int most = d->base.config.max_rows, rows = many ? (most < TOKENS_MANY ? most : TOKENS_MANY) : 1, rc = ERR_DEVICE;
    struct matrix sub;
    struct part part = {.m = &sub};
    struct output o = {&part, d->out};
    struct inputs in = {0};
    float got[ROWS_M * TOKENS_MANY];
    char name[48];
    bool ok = true;

    if (many && most < 2)
        return 0;
    if (inputs_make(b, &in, rows, m->cols) < 0 || prefix(b, m, ROWS_M, &sub, &part.mem) < 0 ||
        jobs_multiply(d, d->h, &d->hq, rows, &o, 1, false, b->e) < 0 || get(b, d->out, 0, got, (size_t)(sub.rows * rows) * 4) < 0)
        goto out;
    for (int t = 0; t < rows; t++)
        for (int r = 0; r < sub.rows; r++) {
            double size;
            float want = dot_reference(&sub, r, in.x + t * m->cols, in.q + t * m->cols, in.d + t * (m->cols / 32), &size);

            ok = ok && near(got[t * sub.rows + r], want, size);
        }
    name_type(name, sizeof name, "matmul", m->type, many);
    if (!ok)
        wrong(b, name);
    rc = 0;
out:
    memory_release(&part.mem);
    inputs_release(&in);
    return rc;
}

/* One expert of the model as the jobs run it, whole: gate, up, SiLU, quantisation again, down. */
static int test_expert(struct bench *b, const struct expert_weights *x, int many)
{
    struct device *d = b->d;
    const struct hparams *hp = &d->base.config.model->hp;
    int most = d->base.config.max_rows * hp->n_experts_used, ffn = hp->expert_ffn, hidden = hp->hidden, rc = ERR_DEVICE;
    int rows = many ? (d->base.config.max_rows < TOKENS_MANY ? d->base.config.max_rows : TOKENS_MANY) : 1;
    int n_tiles = 0, tiles[4 * TOKENS_MANY], entries[2 * TOKENS_MANY], blocks = ffn / 32;
    struct block block = {.n_parts = 3}, *bank[1] = {&block};
    const struct matrix *m[3] = {&x->gate, &x->up, &x->down};
    struct inputs in = {0};
    float *mid = mem_alloc((size_t)(rows * ffn), 4), *got = mem_alloc((size_t)(rows * hidden), 4), *md = mem_alloc((size_t)(rows * blocks), 4);
    int8_t *mq = mem_alloc((size_t)(rows * ffn), 1);
    bool gate_ok = true, down_ok = true;
    char name[48];

    if ((many && rows < 2) || most < rows) {
        rc = 0;
        goto out;
    }
    if (!mid || !got || !md || !mq) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (int i = 0; i < rows; i++) {
        entries[2 * i] = rows - 1 - i;       /* gathered, not in order */
        entries[2 * i + 1] = i;
    }
    for (int i = 0; i < rows; i += many ? TILE : 1, n_tiles++) {
        int left = rows - i;

        tiles[4 * n_tiles] = i;
        tiles[4 * n_tiles + 1] = many ? (left < TILE ? left : TILE) : 1;
        tiles[4 * n_tiles + 2] = tiles[4 * n_tiles + 3] = 0;
    }
    for (int i = 0; i < 3; i++) {
        block.part[i].m = m[i];
        if (memory_buffer(d, m[i]->bytes, &block.part[i].mem, "the self-test", b->e) < 0 || put(b, block.part[i].mem, m[i]->data, m[i]->bytes) < 0)
            goto out;
    }
    if (inputs_make(b, &in, rows, hidden) < 0 || put(b, d->tiles, tiles, (size_t)n_tiles * 16) < 0 || put(b, d->entries, entries, (size_t)rows * 8) < 0 ||
        jobs_expert_tiles(d, bank, 1, 0, n_tiles, many, b->e) < 0 || get(b, d->out, 0, got, (size_t)(rows * hidden) * 4) < 0)
        goto out;
    for (int i = 0; i < rows; i++) {
        int t = entries[2 * i];

        for (int r = 0; r < ffn; r++) {
            double size;
            float g = dot_reference(m[0], r, in.x + t * hidden, in.q + t * hidden, in.d + t * (hidden / 32), &size);
            float u = dot_reference(m[1], r, in.x + t * hidden, in.q + t * hidden, in.d + t * (hidden / 32), &size);

            mid[i * ffn + r] = num_silu(g) * u;
        }
        for (int k = 0; k < blocks; k++)
            md[i * blocks + k] = num_quantise_block(mid + i * ffn + k * 32, mq + i * ffn + k * 32, NULL);
    }
    if (m[0]->width) {
        if (same_quantised(b, &d->mq, mid, rows, ffn, &gate_ok) < 0)
            goto out;
    } else {
        float *device_mid = mem_alloc((size_t)(rows * ffn), 4);

        if (!device_mid || get(b, d->mid, 0, device_mid, (size_t)(rows * ffn) * 4) < 0) {
            mem_free(device_mid);
            goto out;
        }
        for (int i = 0; i < rows * ffn; i++) {
            gate_ok = gate_ok && fabsf(device_mid[i] - mid[i]) <= 1e-3f * (1.0f + fabsf(mid[i]));
            mid[i] = device_mid[i];              /* the next kernel is judged on what it was given */
        }
        mem_free(device_mid);
    }
    for (int i = 0; i < rows && gate_ok; i++)
        for (int r = 0; r < hidden; r += hidden > 512 ? 17 : 1) {
            double size;
            float want = dot_reference(m[2], r, mid + i * ffn, mq + i * ffn, md + i * blocks, &size);

            down_ok = down_ok && near(got[i * hidden + r], want, size);
        }
    name_type(name, sizeof name, "gate_up", m[0]->type, many);
    if (!gate_ok)
        wrong(b, name);
    name_type(name, sizeof name, "down", m[2]->type, many);
    if (!down_ok)
        wrong(b, name);
    rc = 0;
out:
    for (int i = 0; i < 3; i++)
        memory_release(&block.part[i].mem);
    inputs_release(&in);
    mem_free(mid);
    mem_free(got);
    mem_free(md);
    mem_free(mq);
    return rc;
}

/* First matrix of a type that stands against the residual stream, and first expert whose gate has it. */
static const struct matrix *find_matrix(const struct model *m, enum dtype type)
{
    for (int l = 0; l < m->hp.n_layers; l++)
        if (m->layers[l].q.type == type)
            return &m->layers[l].q;
    if (m->head.type == type)
        return &m->head;
    return m->layers[0].experts[0].gate.type == type ? &m->layers[0].experts[0].gate : NULL;
}

static const struct expert_weights *find_expert(const struct model *m, enum dtype type)
{
    for (int l = 0; l < m->hp.n_layers; l++)
        if (m->layers[l].experts[0].gate.type == type || m->layers[l].experts[0].down.type == type)
            return &m->layers[l].experts[0];
    return NULL;
}

static int run_all(struct bench *b)
{
    struct device *d = b->d;
    const struct model *m = d->base.config.model;

    if (test_norm(b) < 0 || test_attention(b) < 0 || test_route(b) < 0)
        return ERR_DEVICE;
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2 && d->type[t].usable; many++) {
            const struct matrix *mat = find_matrix(m, t);
            const struct expert_weights *x = find_expert(m, t);

            if ((mat && test_matmul(b, mat, many) < 0) || (x && d->type[x->gate.type].usable && d->type[x->down.type].usable && test_expert(b, x, many) < 0))
                return ERR_DEVICE;
        }
    return 0;
}

/* Verdict file: a line that names the format, then one wrong kernel a line, then "end". */
static bool verdict_read(const char *path, struct verdict *v)
{
    char line[64];
    FILE *f = fopen(path, "r");
    bool whole = false;

    v->n = 0;
    if (!f)
        return false;
    if (!fgets(line, sizeof line, f) || strcmp(line, "moetop self-test 2\n") != 0) {
        fclose(f);
        return false;
    }
    while (!whole && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "end") == 0)
            whole = true;
        else if (strncmp(line, "wrong ", 6) == 0 && v->n < WRONG_MAX)
            snprintf(v->wrong[v->n++], sizeof v->wrong[0], "%.47s", line + 6);
    }
    fclose(f);
    return whole;
}

static void verdict_write(const char *path, const struct verdict *v)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return;
    fputs("moetop self-test 2\n", f);
    for (int i = 0; i < v->n; i++)
        fprintf(f, "wrong %s\n", v->wrong[i]);
    fputs("end\n", f);
    fclose(f);
}

static void apply(struct device *d, const struct verdict *v)
{
    const struct device_config *c = &d->base.config;
    char line[240], name[48];
    size_t n = 0;

    snprintf(d->verdict, sizeof d->verdict, "every kernel right");
    for (int i = 0; i < v->n && n < sizeof d->verdict; i++)
        n += (size_t)snprintf(d->verdict + n, sizeof d->verdict - n, "%s%s", i ? "; " : "wrong: ", v->wrong[i]);
    for (int i = 0; i < v->n && c->log; i++) {
        snprintf(line, sizeof line, "OpenCL: kernel \"%s\" computes wrong values on %.60s (%.60s); the CPU does that work", v->wrong[i],
                 d->target.info.name, d->target.info.driver);
        c->log(c->log_ctx, line);
    }
    d->core_usable = d->core_usable && !is_wrong(v, "queue") && !is_wrong(v, "norm") && !is_wrong(v, "quantise");
    /* Layers run fused where attention is here, so routing kernels count for it too. */
    d->attention_usable = !is_wrong(v, "rope") && !is_wrong(v, "attend") && !is_wrong(v, "kv_copy") && !is_wrong(v, "route") &&
                          !is_wrong(v, "group_rows") && !is_wrong(v, "combine");
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2; many++) {
            static const char *const kernels[] = {"matmul", "gate_up", "down"};

            for (int k = 0; k < 3; k++) {
                name_type(name, sizeof name, kernels[k], t, many);
                if (!is_wrong(v, name))
                    continue;
                if (k == 0)
                    d->type[t].matmul_wrong = true;
                else
                    d->type[t].expert_wrong = true;
            }
        }
}

int selftest(struct device *d, uint64_t key, struct error *e)
{
    const struct device_config *c = &d->base.config;
    struct verdict v = {0};
    struct bench b = {d, e, 12345, &v};
    char path[1024] = "", line[240];
    uint64_t start = clock_now();

    d->attention_usable = true;
    snprintf(d->verdict, sizeof d->verdict, "not tested");
    if (opencl_tuning_now.no_selftest)
        return 0;
    if (c->cache_dir && snprintf(path, sizeof path, "%s/opencl-%016llx.verdict", c->cache_dir, (unsigned long long)key) >= (int)sizeof path)
        path[0] = '\0';
    if (!path[0] || !verdict_read(path, &v)) {
        v.n = 0;
        if (c->log) {
            snprintf(line, sizeof line, "OpenCL: testing the kernels on %.120s (once per driver and model)", d->target.info.name);
            c->log(c->log_ctx, line);
        }
        if (run_all(&b) < 0)
            return ERR_DEVICE;
        if (path[0])
            verdict_write(path, &v);
        if (c->log) {
            snprintf(line, sizeof line, "OpenCL: self-test took %.1f s, %d kernel%s wrong", clock_seconds(clock_now() - start), v.n, v.n == 1 ? "" : "s");
            c->log(c->log_ctx, line);
        }
    }
    apply(d, &v);
    return 0;
}
