/* Self-test of the attention kernels: rotary embedding, KV cache, scores and values, merging of chunks; over a chunk border and with the
 * cache types of the run. */
#include "gpu/selftest.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

/* Rows of K and V as the cache keeps them: rounded, in the exchange layout. */
struct cache_copy {
    int n, tokens;               /* n: values of one token's K */
    enum kv_type type[2];        /* of K, of V */
    char *rows;
};

static char *cache_row(const struct cache_copy *c, int token, int v)
{
    size_t k = memory_kv_bytes(c->type[0], c->n);

    return c->rows + (size_t)token * (k + memory_kv_bytes(c->type[1], c->n)) + (v ? k : 0);
}

static float cached(const struct cache_copy *c, int token, int v, int i)
{
    const char *p = cache_row(c, token, v);
    uint16_t h;
    float x;

    switch (c->type[v]) {
    case KV_F32:
        memcpy(&x, p + 4 * i, 4);
        return x;
    case KV_F16:
        memcpy(&h, p + 2 * i, 2);
        return num_from_f16(h);
    default:
        p += i / 32 * 34;
        memcpy(&h, p, 2);
        return (float)((const int8_t *)p)[2 + i % 32] * num_from_f16(h);
    }
}

/* n values (of whole blocks of 32 with Q8_0) from value i on. */
static void cache_set(struct cache_copy *c, int token, int v, int i, const float *x, int n)
{
    char *p = cache_row(c, token, v);

    for (int k = 0; k < n; k++) {
        uint16_t h;

        if (c->type[v] == KV_F32) {
            memcpy(p + 4 * (i + k), x + k, 4);
        } else if (c->type[v] == KV_F16) {
            h = num_to_f16(x[k]);
            memcpy(p + 2 * (i + k), &h, 2);
        } else if (k % 32 == 0) {
            h = num_kv_quantise_block(x + k, (int8_t *)p + (i + k) / 32 * 34 + 2);
            memcpy(p + (i + k) / 32 * 34, &h, 2);
        }
    }
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

int selftest_attention(struct selftest *b)
{
    const struct hparams *hp = &b->d->base.config.model->hp;
    struct device *d = b->d;
    int dim = hp->head_dim, heads = hp->n_heads, kvh = hp->n_kv_heads, half = hp->rope_dims / 2, rc = ERR_DEVICE;
    int rows = d->base.config.max_rows < 3 ? d->base.config.max_rows : 3, tokens = d->base.config.context < 275 ? d->base.config.context : 275;
    int pos = tokens - rows, window = hp->sliding_window, first = window && pos - window + 1 > 0 ? (pos - window + 1) / 256 : 0;
    int last = (tokens - 1) / 256;
    struct cache_copy c = {kvh * dim, tokens, {d->base.config.kv_k, d->base.config.kv_v}, NULL};
    size_t k_row = memory_kv_bytes(c.type[0], c.n), v_row = memory_kv_bytes(c.type[1], c.n), row_bytes = k_row + v_row, items = d->wide ? 1 : 64;
    float *q = selftest_randoms(b, (size_t)(rows * heads * dim), 2.0f), *k = selftest_randoms(b, (size_t)(rows * c.n), 2.0f), *v = selftest_randoms(b, (size_t)(rows * c.n), 2.0f);
    float *table = selftest_randoms(b, (size_t)(2 * tokens * half) + 1, 1.0f), *got = mem_alloc((size_t)(rows * heads * dim), 4), rotated[512], want[512];
    char *back = mem_alloc((size_t)tokens, row_bytes);
    float *fill = mem_alloc((size_t)c.n, sizeof *fill);
    cl_mem mk = NULL, mv = NULL;
    bool rope_ok = true, attend_ok = true, copy_ok, merge_ok = true;

    c.rows = mem_alloc((size_t)tokens, row_bytes);
    if (!q || !k || !v || !table || !got || !back || !fill || !c.rows || dim > 512) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (int t = 0; t < tokens; t++)
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < c.n; j++)
                fill[j] = selftest_uniform(b) * 2.0f;
            cache_set(&c, t, i, 0, fill, c.n);
        }
    if (memory_buffer(d, k_row * (size_t)d->stride, &mk, "the self-test", b->e) < 0 || memory_buffer(d, v_row * (size_t)d->stride, &mv, "the self-test", b->e) < 0 ||
        selftest_put(b, d->q, q, (size_t)(rows * heads * dim) * 4) < 0 || selftest_put(b, d->k, k, (size_t)(rows * c.n) * 4) < 0 ||
        selftest_put(b, d->v, v, (size_t)(rows * c.n) * 4) < 0 || (half && selftest_put(b, d->rope_cos, table, (size_t)(tokens * half) * 4) < 0) ||
        (half && selftest_put(b, d->rope_sin, table + tokens * half, (size_t)(tokens * half) * 4) < 0))
        goto out;
    for (int t = 0; t < tokens; t += rows) {
        int n = tokens - t < rows ? tokens - t : rows;

        if (selftest_put(b, d->kv_rows, c.rows + (size_t)t * row_bytes, (size_t)n * row_bytes) < 0 ||
            launch_args(d, d->core[CORE_KV], 0, b->e, "mmmiiiiii", mk, mv, d->kv_rows, kvh, dim, t, n, d->stride, 1) < 0 ||
            selftest_core(b, CORE_KV, "kv_copy", (size_t)(2 * c.n), (size_t)n, 1, 32) < 0)
            goto out;
    }
    if (launch_args(d, d->core[CORE_ROPE], 0, b->e, "mmmmmmmmiiiiiif", d->q, d->k, d->v, d->qr, mk, mv, d->rope_cos, d->rope_sin, heads, kvh, dim,
                    hp->rope_dims, pos, d->stride, (double)d->score_scale) < 0 ||
        selftest_core(b, CORE_ROPE, "rope", (size_t)dim, (size_t)(heads + 2 * kvh), (size_t)rows, 32) < 0 ||
        selftest_get(b, d->qr, 0, got, (size_t)(rows * heads * dim) * 4) < 0)
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
            cache_set(&c, pos + r, 0, h * dim, rotated, dim);
            cache_set(&c, pos + r, 1, h * dim, v + (r * kvh + h) * dim, dim);
        }
    }
    for (int t = 0; t < tokens; t += rows) {
        int n = tokens - t < rows ? tokens - t : rows;

        if (launch_args(d, d->core[CORE_KV], 0, b->e, "mmmiiiiii", mk, mv, d->kv_rows, kvh, dim, t, n, d->stride, 0) < 0 ||
            selftest_core(b, CORE_KV, "kv_copy", (size_t)(2 * c.n), (size_t)n, 1, 32) < 0 ||
            selftest_get(b, d->kv_rows, 0, back + (size_t)t * row_bytes, (size_t)n * row_bytes) < 0)
            goto out;
    }
    copy_ok = memcmp(back, c.rows, (size_t)pos * row_bytes) == 0;
    rope_ok = rope_ok && memcmp(back + (size_t)pos * row_bytes, c.rows + (size_t)pos * row_bytes, (size_t)rows * row_bytes) == 0;
    if (selftest_put(b, d->qr, q, (size_t)(rows * heads * dim) * 4) < 0 ||
        launch_args(d, d->core[CORE_ATTEND], 0, b->e, "mmmmiiiiiiiii", d->qr, mk, mv, d->part, heads, kvh, dim, pos, 0, window, d->stride, first,
                    last - first + 1) < 0 ||
        selftest_core(b, CORE_ATTEND, "attend", (size_t)(last - first + 1) * items, (size_t)heads, (size_t)rows, items) < 0 ||
        launch_args(d, d->core[CORE_MERGE], 0, b->e, "mmmmmiiiiiiii", d->part, d->heads_out, d->oq.q, d->oq.d, d->oq.s, heads, dim, pos, 0, rows,
                    window, first, last - first + 1) < 0 ||
        selftest_core(b, CORE_MERGE, "attend_merge", (size_t)(heads * dim / 32), (size_t)rows, 1, 32) < 0 ||
        selftest_get(b, d->heads_out, 0, got, (size_t)(rows * heads * dim) * 4) < 0 || selftest_same_quantised(b, &d->oq, got, rows, heads * dim, &merge_ok) < 0)
        goto out;
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) {
            attend_reference(&c, q + (r * heads + h) * dim, h / (heads / kvh), dim, pos + r, window, want);
            attend_ok = attend_ok && memcmp(got + (r * heads + h) * dim, want, (size_t)dim * 4) == 0;
        }
    if (!rope_ok)
        selftest_wrong(b, "rope");
    if (!attend_ok || !merge_ok)
        selftest_wrong(b, "attend");
    if (!copy_ok)
        selftest_wrong(b, "kv_copy");
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
    mem_free(fill);
    mem_free(c.rows);
    return rc;
}
