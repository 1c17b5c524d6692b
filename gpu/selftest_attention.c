/* Self-test of the attention kernels: rotary embedding, KV cache, scores and values, merging of
 * chunks; across a chunk border and with the cache types of the run. */
#include "gpu/selftest.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <string.h>

#define ROWS_MOST 3
#define TOKENS_MOST 275 /* beyond a chunk of keys */

struct attention_test {
    struct selftest *b;
    const struct mixer_shape *shape; /* the first layer's */
    int dim, heads, kv_heads, half;  /* half: rope_dims / 2 */
    int rows, tokens, pos;           /* queries, all keys, position of the queries */
    struct reference_cache cache;
    float *q, *k, *v, *got;
    float *cos, *sin; /* one piece: (tokens, half) each */
    float *sinks;     /* (heads) */
    float *gates;     /* as q */
    char *back;       /* rows of the cache as read back */
    float *by_token;  /* token_attend's outputs, and the cache behind it */
    char *token_cache;
    cl_mem mkv, msinks, mgates;
    struct kv_place kv;
};

static size_t query_count(const struct attention_test *t)
{
    return (size_t)(t->rows * t->heads * t->dim);
}

static int test_init(struct attention_test *t, struct selftest *b)
{
    const struct device_config *c = &b->d->base.config;
    const struct mixer_shape *s = &hparams_layer(&c->model->hp, selftest_attending(b->d))->mixer;
    int kv = s->kv_heads * s->key_dim;
    size_t table;

    *t = (struct attention_test){.b = b,
                                 .shape = s,
                                 .dim = s->key_dim,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .half = s->rope_dims / 2};
    t->rows = c->max_rows < ROWS_MOST ? c->max_rows : ROWS_MOST;
    t->tokens = c->context < TOKENS_MOST ? c->context : TOKENS_MOST;
    t->pos = t->tokens - t->rows;
    t->cache = (struct reference_cache){kv, t->tokens, kv, {c->kv_k, c->kv_v}, NULL, 0};
    t->q = selftest_randoms(b, query_count(t), 2.0f);
    t->k = selftest_randoms(b, (size_t)(t->rows * kv), 2.0f);
    t->v = selftest_randoms(b, (size_t)(t->rows * kv), 2.0f);
    table = (size_t)(t->tokens * t->half);
    t->cos = selftest_randoms(b, 2 * table + 1, 1.0f);
    t->sin = t->cos + table;
    t->sinks = selftest_randoms(b, (size_t)t->heads, 2.0f);
    t->gates = selftest_randoms(b, query_count(t), 4.0f);
    t->got = mem_alloc(query_count(t), sizeof *t->got);
    t->back = mem_alloc((size_t)t->tokens, reference_cache_bytes(&t->cache));
    t->cache.rows = mem_alloc((size_t)t->tokens, reference_cache_bytes(&t->cache));
    t->by_token = mem_alloc(query_count(t), sizeof *t->by_token);
    t->token_cache = mem_alloc((size_t)t->tokens, reference_cache_bytes(&t->cache));
    if (!t->q || !t->k || !t->v || !t->cos || !t->sinks || !t->gates || !t->got || !t->back ||
        !t->cache.rows || !t->by_token || !t->token_cache || t->dim > REFERENCE_DIM)
        return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    return 0;
}

static void test_release(struct attention_test *t)
{
    memory_release(&t->mkv);
    memory_release(&t->msinks);
    memory_release(&t->mgates);
    mem_free(t->sinks);
    mem_free(t->gates);
    mem_free(t->q);
    mem_free(t->k);
    mem_free(t->v);
    mem_free(t->cos);
    mem_free(t->got);
    mem_free(t->back);
    mem_free(t->by_token);
    mem_free(t->token_cache);
    mem_free(t->cache.rows);
}

/* Random keys and values everywhere; the queries' own are overwritten later. */
static void fill_cache(struct attention_test *t)
{
    float x[REFERENCE_DIM];

    for (int token = 0; token < t->tokens; token++)
        for (int v = 0; v < 2; v++)
            for (int h = 0; h < t->kv_heads; h++) {
                for (int i = 0; i < t->dim; i++)
                    x[i] = reference_random(&t->b->seed) * 2.0f;
                reference_cache_set(&t->cache, token, v, h * t->dim, x, t->dim);
            }
}

/* All rows of the cache, in the exchange layout, to the device or back to the host. */
static int move_cache(struct attention_test *t, char *rows, bool write)
{
    struct device *d = t->b->d;
    size_t bytes = reference_cache_bytes(&t->cache);

    for (int token = 0; token < t->tokens; token += t->rows) {
        int n = t->tokens - token < t->rows ? t->tokens - token : t->rows;
        char *at = rows + (size_t)token * bytes;

        if ((write && selftest_put(t->b, d->kv_rows, at, (size_t)n * bytes) < 0) ||
            launch_args(d, d->core[CORE_KV], 0, t->b->e, "mmmiiii" KV_ARGS "i", t->kv.rows,
                        t->kv.pages, d->kv_rows, t->kv_heads, t->dim, token, n, KV_INTS(&t->kv),
                        write) < 0 ||
            selftest_core(t->b, CORE_KV, "kv_copy", (size_t)(2 * t->cache.n), (size_t)n, 1, 32) <
                0 ||
            (!write && selftest_get(t->b, d->kv_rows, 0, at, (size_t)n * bytes) < 0))
            return ERR_DEVICE;
    }
    return 0;
}

/* The table of cosines or sines that the layer reads. */
static cl_mem rope_table(const struct attention_test *t, bool cosines)
{
    const struct device *d = t->b->d;

    if (t->shape->second_rope)
        return cosines ? d->second_cos : d->second_sin;
    return cosines ? d->rope_cos[0] : d->rope_sin[0];
}

static int upload(struct attention_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    size_t kv = (size_t)(t->rows * t->cache.n) * 4, table = (size_t)(t->tokens * t->half) * 4;

    t->kv = memory_kv_place(d, selftest_attending(d), NULL);
    t->kv.chunks = d->kv_chunks; /* no ring */
    if (memory_buffer(d, (size_t)t->kv.chunks * (size_t)t->kv.page_step * 16, &t->mkv,
                      "the self-test", b->e) < 0)
        return ERR_DEVICE;
    t->kv.rows = t->mkv;
    if (memory_buffer(d, (size_t)t->heads * 4, &t->msinks, "the self-test", b->e) < 0 ||
        memory_buffer(d, query_count(t) * 4, &t->mgates, "the self-test", b->e) < 0 ||
        selftest_put(b, t->msinks, t->sinks, (size_t)t->heads * 4) < 0 ||
        selftest_put(b, t->mgates, t->gates, query_count(t) * 4) < 0 ||
        selftest_put(b, d->q, t->q, query_count(t) * 4) < 0 ||
        selftest_put(b, d->k, t->k, kv) < 0 || selftest_put(b, d->v, t->v, kv) < 0)
        return ERR_DEVICE;
    if (t->half && (selftest_put(b, rope_table(t, true), t->cos, table) < 0 ||
                    selftest_put(b, rope_table(t, false), t->sin, table) < 0))
        return ERR_DEVICE;
    return move_cache(t, t->cache.rows, true);
}

static bool tests_token(const struct attention_test *t)
{
    return kernel_set_token_attends(t->b->d, t->shape, t->tokens / 256 + 1);
}

/* The queries' rows one by one, each a token, then the cache as it was. What they gave is compared
 * with the kernels that compute all of them (test_token). */
static int run_tokens(struct attention_test *t)
{
    struct device *d = t->b->d;
    bool right = true;

    for (int r = 0; r < t->rows; r++) {
        struct token_place place = {&t->kv, t->msinks, t->mgates, t->pos + r, r, 0};

        if (job_begin(d, t->b->e) < 0 || jobs_token_attend(d, t->shape, &place, t->b->e) < 0 ||
            job_end(d, t->b->e) < 0 || job_harvest(d, t->b->e) < 0)
            return ERR_DEVICE;
    }
    if (selftest_get(t->b, d->heads_out, 0, t->by_token, query_count(t) * 4) < 0 ||
        selftest_same_quantised(t->b, &d->oq, t->by_token, t->rows, t->heads * t->dim, &right) <
            0 ||
        move_cache(t, t->token_cache, false) < 0)
        return ERR_DEVICE;
    if (!right)
        selftest_wrong(t->b, "token_attend");
    return move_cache(t, t->cache.rows, true);
}

/* The reference: queries rotated in place, the new rows in the cache. */
static void rotate(struct attention_test *t, int row)
{
    const float *cos = t->cos + (t->pos + row) * t->half, *sin = t->sin + (t->pos + row) * t->half;
    float rotated[REFERENCE_DIM];

    for (int h = 0; h < t->heads; h++) {
        float *q = t->q + (row * t->heads + h) * t->dim;

        reference_rotate(q, t->shape, cos, sin, shape_score_scale(t->shape), rotated);
        memcpy(q, rotated, (size_t)t->dim * sizeof *q);
    }
    for (int h = 0; h < t->kv_heads; h++) {
        int at = (row * t->kv_heads + h) * t->dim;

        reference_rotate(t->k + at, t->shape, cos, sin, 1.0f, rotated);
        reference_cache_set(&t->cache, t->pos + row, 0, h * t->dim, rotated, t->dim);
        reference_cache_set(&t->cache, t->pos + row, 1, h * t->dim, t->v + at, t->dim);
    }
}

/* The kernels for many tokens on the first `rows` of the test's. */
static int launch_rope(struct attention_test *t, int rows)
{
    struct device *d = t->b->d;

    if (launch_args(d, d->core[CORE_ROPE], 0, t->b->e, "mmmmmmmmiiiiii" KV_ARGS "fi", d->q, d->k,
                    d->v, d->qr, t->kv.rows, t->kv.pages, rope_table(t, true), rope_table(t, false),
                    t->heads, t->kv_heads, t->dim, 2 * t->half, t->pos, 0, KV_INTS(&t->kv),
                    (double)shape_score_scale(t->shape), jobs_rope_apart(t->shape)) < 0)
        return ERR_DEVICE;
    return selftest_core(t->b, CORE_ROPE, "rope", (size_t)t->dim,
                         (size_t)(t->heads + 2 * t->kv_heads), (size_t)rows, 32);
}

static int launch_attend(struct attention_test *t, int rows)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    int window = t->shape->window, pos = t->pos;
    int first = window && pos - window + 1 > 0 ? (pos - window + 1) / 256 : 0,
        n = (pos + rows - 1) / 256 - first + 1;
    size_t items = (size_t)d->row_items;

    if (launch_args(d, d->core[CORE_ATTEND], 0, b->e, "mmmmiiiiii" KV_ARGS "ii", d->qr, t->kv.rows,
                    t->kv.pages, d->part, t->heads, t->kv_heads, t->dim, pos, 0, window,
                    KV_INTS(&t->kv), first, n) < 0 ||
        selftest_core(b, CORE_ATTEND, "attend", (size_t)n * items, (size_t)t->heads, (size_t)rows,
                      items) < 0 ||
        launch_args(d, d->core[CORE_MERGE], 0, b->e, "mmmmmmmiiiiiiiii", d->part, t->msinks,
                    t->mgates, d->heads_out, d->oq.q, d->oq.d, d->oq.s, t->heads, t->dim, pos, 0,
                    rows, window, first, n, jobs_merge_flags(t->shape)) < 0)
        return ERR_DEVICE;
    return selftest_core(b, CORE_MERGE, "attend_merge", jobs_merge_items(d, t->shape), (size_t)rows,
                         1, 32);
}

/* The first row as a token: joined, or by three kernels. */
static int run_token_form(void *ctx, bool joined)
{
    struct attention_test *t = ctx;
    struct device *d = t->b->d;
    struct token_place place = {&t->kv, t->msinks, t->mgates, t->pos, 0, 0};

    if (joined)
        return jobs_token_attend(d, t->shape, &place, t->b->e);
    return launch_rope(t, 1) < 0 ? ERR_DEVICE : launch_attend(t, 1);
}

/* Compares the rotated queries, the keys and values in the cache, and its previous contents. */
static int test_rope_and_cache(struct attention_test *t)
{
    struct device *d = t->b->d;
    size_t before = (size_t)t->pos * reference_cache_bytes(&t->cache),
           own = (size_t)t->rows * reference_cache_bytes(&t->cache);
    bool right;

    if (launch_rope(t, t->rows) < 0 ||
        selftest_get(t->b, d->qr, 0, t->got, query_count(t) * 4) < 0 ||
        move_cache(t, t->back, false) < 0)
        return ERR_DEVICE;
    for (int r = 0; r < t->rows; r++)
        rotate(t, r);
    right = memcmp(t->got, t->q, query_count(t) * 4) == 0 &&
            memcmp(t->back + before, t->cache.rows + before, own) == 0;
    if (!right)
        selftest_wrong(t->b, "rope");
    if (memcmp(t->back, t->cache.rows, before) != 0)
        selftest_wrong(t->b, "kv_copy");
    return 0;
}

/* Runs the reference's queries against the device's cache. */
static int run_attend(struct attention_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;

    if (selftest_put(b, d->qr, t->q, query_count(t) * 4) < 0 || launch_attend(t, t->rows) < 0)
        return ERR_DEVICE;
    return selftest_get(b, d->heads_out, 0, t->got, query_count(t) * 4);
}

static int test_attend(struct attention_test *t)
{
    struct device *d = t->b->d;
    int window = t->shape->window;
    float want[REFERENCE_DIM];
    bool right = true;

    if (run_attend(t) < 0 ||
        selftest_same_quantised(t->b, &d->oq, t->got, t->rows, t->heads * t->dim, &right) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < t->rows * t->heads; i++) {
        int row = i / t->heads, head = i % t->heads;

        if (reference_attend(&t->cache, t->q + i * t->dim, head / (t->heads / t->kv_heads), t->dim,
                             t->pos + row, window, t->shape->sinks ? t->sinks[head] : -INFINITY,
                             NULL, want) < 0)
            return error_set(t->b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        for (int k = 0; k < t->dim && t->shape->gated; k++) {
            float gate = t->gates[t->shape->gate == GATE_HEADS ? i : i * t->dim + k];

            want[k] = want[k] * (t->shape->gate_softplus ? num_softplus(gate) : num_sigmoid(gate));
        }
        right = right && memcmp(t->got + i * t->dim, want, (size_t)t->dim * sizeof *want) == 0;
    }
    if (!right)
        selftest_wrong(t->b, "attend");
    return 0;
}

/* Compares the separated queries and gates. */
static int test_gates(struct attention_test *t)
{
    struct device *d = t->b->d;
    size_t n = query_count(t), dim = (size_t)t->dim, bytes = n * sizeof(float);
    float *raw = mem_alloc(n, 2 * sizeof *raw);
    int rc = raw ? 0 : error_set(t->b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    bool right = true;

    for (size_t i = 0; i < n && raw; i += dim) {
        memcpy(raw + 2 * i, t->q + i, dim * sizeof *raw);
        memcpy(raw + 2 * i + dim, t->gates + i, dim * sizeof *raw);
    }
    if (rc == 0 && (selftest_put(t->b, d->raw, raw, 2 * bytes) < 0 ||
                    launch_args(d, d->core[CORE_PART_GATES], 0, t->b->e, "mmmii", d->raw, d->q,
                                d->gates, t->dim, (int)n) < 0 ||
                    selftest_core(t->b, CORE_PART_GATES, "part_gates", n, 1, 1, 32) < 0 ||
                    selftest_get(t->b, d->q, 0, t->got, bytes) < 0))
        rc = ERR_DEVICE;
    right = rc == 0 && memcmp(t->got, t->q, bytes) == 0;
    if (rc == 0)
        rc = selftest_get(t->b, d->gates, 0, t->got, bytes);
    if (rc == 0 && !(right && memcmp(t->got, t->gates, bytes) == 0))
        selftest_wrong(t->b, "part_gates");
    mem_free(raw);
    return rc;
}

/* Behind test_attend: what that computed is still there. */
static int test_token(struct attention_test *t)
{
    size_t bytes = (size_t)t->tokens * reference_cache_bytes(&t->cache);

    if (memcmp(t->by_token, t->got, query_count(t) * 4) == 0 &&
        memcmp(t->token_cache, t->back, bytes) == 0)
        return selftest_compare(t->b, "token_attend", run_token_form, t);
    selftest_wrong(t->b, "token_attend");
    return 0;
}

int selftest_attention(struct selftest *b)
{
    struct attention_test t;
    int rc = test_init(&t, b);

    if (rc == 0) {
        fill_cache(&t);
        rc = upload(&t);
    }
    if (rc == 0 && t.shape->gated && t.shape->gate == GATE_WITHIN)
        rc = test_gates(&t);
    if (rc == 0 && tests_token(&t))
        rc = run_tokens(&t);
    if (rc == 0)
        rc = test_rope_and_cache(&t);
    if (rc == 0)
        rc = test_attend(&t);
    if (rc == 0 && tests_token(&t))
        rc = test_token(&t);
    test_release(&t);
    return rc < 0 ? ERR_DEVICE : 0;
}
