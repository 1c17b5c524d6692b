/* Self-test of the matrix kernels of one element type: a product, and a whole expert. Quantised
 * ones against the scalar kernels of the CPU device, which implement the contract literally
 * (numerics.h), to the bit; float ones within a rounding of each product. */
#include "gpu/selftest.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"
#include "engine/device/numerics.h"
#include "engine/layout/pack.h"

#include <math.h>
#include <string.h>

#define ROWS_M 88                   /* rows of a matrix compared */
#define USED_MOST 64                /* experts of a token */
#define TOKENS_MOST (GEMM_TILE + 3) /* a whole tile and a part of one */

/* The sum of a row's magnitudes, for the tolerance of a float product. */
static double magnitude(const struct matrix *m, int r, const float *x)
{
    size_t row = dtype_row_bytes(m->type, m->cols), element = dtype_row_bytes(m->type, 1);
    const char *p = (const char *)m->data + (size_t)r * row;
    float w[256];
    double sum = 0;

    for (int c = 0, n; c < m->cols; c += n) {
        n = m->cols - c < 256 ? m->cols - c : 256;
        row_to_f32(m->type, p + (size_t)c * element, n, w);
        for (int i = 0; i < n; i++)
            sum += fabs((double)w[i] * (double)x[c + i]);
    }
    return sum;
}

/* y = the matrix times one row. size: for near(), 0 if quantised. */
static int reference(struct selftest *b, const struct matrix *m, const float *x, float *y,
                     double *size)
{
    if (reference_multiply(m, x, y) < 0)
        return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    for (int r = 0; r < m->rows; r++)
        size[r] = m->width ? 0 : magnitude(m, r, x);
    return 0;
}

static bool near(float got, float want, double size)
{
    return size == 0 ? num_bits(got) == num_bits(want)
                     : fabs((double)got - (double)want) <= 1e-5 * size;
}

/* The first rows of a matrix as a separate part. */
static int prefix(struct selftest *b, const struct matrix *m, int rows, struct matrix *out,
                  cl_mem *mem)
{
    *out = *m;
    out->rows = m->rows < rows ? m->rows : rows;
    out->bytes = m->width ? m->bytes / (size_t)((m->rows + m->width - 1) / m->width) *
                                (size_t)((out->rows + m->width - 1) / m->width)
                          : m->bytes / (size_t)m->rows * (size_t)out->rows;
    out->bias = NULL;
    return memory_buffer(b->d, out->bytes, mem, "the self-test", b->e) < 0
               ? ERR_DEVICE
               : selftest_put(b, *mem, out->data, out->bytes);
}

/* Rows of activations, on the device (h, hq) and on the host: mem_free. NULL: out of memory, or the
 * device failed. */
static float *make_inputs(struct selftest *b, int rows, int cols)
{
    struct device *d = b->d;
    size_t n = (size_t)rows * (size_t)cols, blocks = n / 32 * sizeof(float);
    float *x = selftest_randoms(b, n, 2.0f);
    struct quantised_rows q;
    bool there = selftest_quantised_init(&q, b, n) == 0 && x;

    if (!x)
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    if (there) {
        selftest_quantise(&q, x);
        there = selftest_put(b, d->hq.q, q.values, q.bytes) == 0 &&
                selftest_put(b, d->hq.d, q.scales, blocks) == 0 &&
                selftest_put(b, d->hq.s, q.sums, blocks) == 0 &&
                selftest_put(b, d->h, x, n * sizeof *x) == 0;
    }
    selftest_quantised_release(&q);
    if (!there) {
        mem_free(x);
        return NULL;
    }
    return x;
}

/* A whole tile and a part of one. */
static int test_rows(const struct device *d, enum dtype type, int many)
{
    int rows = kernel_set_tile(d, type, many) + 3, most = d->base.config.max_rows;

    return !many ? 1 : most < rows ? most : rows;
}

/* A matrix of the model with `hidden` columns. */
int selftest_matmul(struct selftest *b, const struct matrix *m, int many)
{
    struct device *d = b->d;
    int rows = test_rows(d, m->type, many), rc = ERR_DEVICE;
    struct matrix sub;
    struct part part = {.m = &sub};
    struct output o = {&part, d->out};
    float got[ROWS_M * TOKENS_MOST], want[ROWS_M], *x;
    double size[ROWS_M];
    char name[48];
    bool ok = true;

    if (many && rows < 2)
        return 0;
    if (!(x = make_inputs(b, rows, m->cols)) || prefix(b, m, ROWS_M, &sub, &part.mem) < 0 ||
        jobs_multiply(d, d->h, &d->hq, rows, &o, 1, false, b->e) < 0 ||
        selftest_get(b, d->out, 0, got, (size_t)(sub.rows * rows) * 4) < 0)
        goto out;
    for (int t = 0; t < rows; t++) {
        if (reference(b, &sub, x + t * m->cols, want, size) < 0)
            goto out;
        for (int r = 0; r < sub.rows; r++)
            ok = ok && near(got[t * sub.rows + r], want[r], size[r]);
    }
    selftest_name(name, sizeof name, "matmul", m->type, many);
    if (!ok)
        selftest_wrong(b, name);
    rc = 0;
out:
    memory_release(&part.mem);
    mem_free(x);
    return rc;
}

/* A product with one token. */
struct matmul_duel {
    struct selftest *b;
    struct output o;
};

static int run_matmul(void *ctx, bool joined)
{
    struct matmul_duel *x = ctx;

    (void)joined;
    return jobs_multiply_own(x->b->d, x->b->d->h, &x->b->d->hq, 1, &x->o, 1, false, x->b->e);
}

int selftest_matmul_duel(struct selftest *b, const struct matrix *m, struct type_kernels *other,
                         double *ratio)
{
    struct matrix whole;
    struct part part = {.m = &whole};
    struct matmul_duel x = {b, {&part, NULL}};
    float *in = make_inputs(b, 1, m->cols);
    int rc = ERR_DEVICE;

    if (in && prefix(b, m, m->rows, &whole, &part.mem) == 0 &&
        memory_buffer(b->d, (size_t)m->rows * 4, &x.o.y, "the self-test", b->e) == 0)
        rc = selftest_duel(b, m->type, other, run_matmul, &x, ratio);
    memory_release(&part.mem);
    memory_release(&x.o.y);
    mem_free(in);
    return rc;
}

#define TIMED_ROWS 2048 /* of a matrix, */
#define TIMED_TOKENS 512
#define TIMED_ROUNDS 4 /* the first is not counted */

int selftest_matmul_time(struct selftest *b, const struct matrix *m, uint64_t *ns)
{
    struct device *d = b->d;
    int hidden = d->base.config.model->hp.hidden, most = d->base.config.max_rows,
        rows = most < TIMED_TOKENS ? most : TIMED_TOKENS, rc = 0;
    struct matrix sub;
    struct part part = {.m = &sub};
    struct output o = {&part, d->out};

    *ns = UINT64_MAX;
    if (prefix(b, m, hidden < TIMED_ROWS ? hidden : TIMED_ROWS, &sub, &part.mem) < 0)
        rc = ERR_DEVICE;
    for (int i = 0; i < TIMED_ROUNDS && rc == 0; i++) {
        uint64_t start = clock_now(), took;

        rc = jobs_multiply_own(d, d->h, &d->hq, rows, &o, 1, false, b->e);
        if (rc == 0)
            rc = cl_check(d, cl.Finish(d->queue), "clFinish", b->e);
        took = clock_now() - start;
        if (i && took < *ns)
            *ns = took;
    }
    memory_release(&part.mem);
    return rc;
}

struct expert_test {
    struct selftest *b;
    const struct ffn_shape *shape;
    struct expert_weights w; /* of the model */
    int rows, ffn, hidden, many;
    struct block block; /* they on the device */
    struct entry entry[TOKENS_MOST];
    float *x, *mid, *got; /* inputs; what lies between; outputs of the device */
    float *want;          /* one row */
    double *size;         /* of a row */
};

static int expert_init(struct expert_test *t, struct selftest *b, const struct ffn_shape *s,
                       const struct expert_weights *x, int rows, int many)
{
    const struct hparams *hp = &b->d->base.config.model->hp;
    size_t widest = (size_t)(x->up.rows > hp->hidden ? x->up.rows : hp->hidden);

    *t = (struct expert_test){.b = b,
                              .shape = s,
                              .w = *x,
                              .rows = rows,
                              .ffn = x->up.rows,
                              .hidden = hp->hidden,
                              .many = many,
                              .block = {.n_parts = 3}};
    t->mid = mem_alloc((size_t)(rows * t->ffn), sizeof *t->mid);
    t->got = mem_alloc((size_t)(rows * t->hidden), sizeof *t->got);
    t->want = mem_alloc(widest, sizeof *t->want);
    t->size = mem_alloc(widest, sizeof *t->size);
    if (!t->mid || !t->got || !t->want || !t->size)
        return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    return 0;
}

/* An expert's matrices on the device. */
static int put_block(struct expert_test *t, struct block *block)
{
    struct selftest *b = t->b;
    const struct matrix *m[3] = {&t->w.gate, &t->w.up, &t->w.down};

    block->n_parts = 3;
    for (int i = 0; i < 3; i++) {
        struct part *p = &block->part[i];
        size_t bias = (size_t)m[i]->rows * sizeof *m[i]->bias;

        if (!m[i]->bytes)
            continue; /* no gate */
        p->m = m[i];
        if (memory_buffer(b->d, p->m->bytes, &p->mem, "the self-test", b->e) < 0 ||
            selftest_put(b, p->mem, p->m->data, p->m->bytes) < 0 ||
            (p->m->bias && (memory_buffer(b->d, bias, &p->bias, "the self-test", b->e) < 0 ||
                            selftest_put(b, p->bias, p->m->bias, bias) < 0)))
            return ERR_DEVICE;
    }
    return 0;
}

static void release_block(struct block *block)
{
    for (int i = 0; i < 3; i++) {
        memory_release(&block->part[i].mem);
        memory_release(&block->part[i].bias);
    }
}

static void expert_release(struct expert_test *t)
{
    release_block(&t->block);
    mem_free(t->x);
    mem_free(t->mid);
    mem_free(t->got);
    mem_free(t->want);
    mem_free(t->size);
}

static int expert_run(struct expert_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    struct expert_bank bank = {{&t->block}, 1, NULL};
    struct tile tile[TOKENS_MOST];
    int n_tiles = 0, step = kernel_set_tile(d, t->w.up.type, t->many);

    for (int i = 0; i < t->rows; i++)
        t->entry[i] = (struct entry){t->rows - 1 - i, i}; /* gathered, not in order */
    for (int i = 0; i < t->rows; i += step)
        tile[n_tiles++] = (struct tile){i, t->rows - i < step ? t->rows - i : step, 0, 0};
    if (put_block(t, &t->block) < 0 || !(t->x = make_inputs(b, t->rows, t->hidden)) ||
        selftest_put(b, d->tiles, tile, (size_t)n_tiles * sizeof *tile) < 0 ||
        selftest_put(b, d->entries, t->entry, (size_t)t->rows * sizeof *t->entry) < 0 ||
        jobs_expert_tiles(d, t->shape, &bank, 0, n_tiles, t->many, b->e) < 0)
        return ERR_DEVICE;
    return selftest_get(b, d->out, 0, t->got, (size_t)(t->rows * t->hidden) * 4);
}

/* The device's float rows between the kernels; the next kernel is tested with these as input. */
static int take_mid(struct expert_test *t, bool *right)
{
    int n = t->rows * t->ffn;
    float *got = mem_alloc((size_t)n, sizeof *got);
    int rc = got ? selftest_get(t->b, t->b->d->mid, 0, got, (size_t)n * 4)
                 : error_set(t->b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");

    for (int i = 0; i < n && rc == 0; i++) {
        *right = *right && fabsf(got[i] - t->mid[i]) <= 1e-3f * (1.0f + fabsf(t->mid[i]));
        t->mid[i] = got[i];
    }
    mem_free(got);
    return rc;
}

static int gate_up_right(struct expert_test *t, bool *right)
{
    for (int i = 0; i < t->rows; i++)
        if (reference_gate_up(t->shape, 0, &t->w, t->x + t->entry[i].row * t->hidden, 1.0f,
                              t->mid + i * t->ffn) < 0)
            return error_set(t->b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    return t->w.up.width
               ? selftest_same_quantised(t->b, &t->b->d->mq, t->mid, t->rows, t->ffn, right)
               : take_mid(t, right);
}

static int down_right(struct expert_test *t, bool *right)
{
    for (int i = 0; i < t->rows; i++) {
        if (reference(t->b, &t->w.down, t->mid + i * t->ffn, t->want, t->size) < 0)
            return ERR_MEMORY;
        for (int r = 0; r < t->hidden; r++)
            *right = *right && near(t->got[i * t->hidden + r], t->want[r], t->size[r]);
    }
    return 0;
}

/* token_down of as many experts as the model uses, all of them this one, on rows of its own. */
struct token_down_test {
    struct expert_test *t;
    int used;
    struct expert_bank bank;
    struct norm_rows next;
    float *weights;
};

static const struct norms_shape *common_norms(const struct selftest *b)
{
    return &b->d->base.config.model->hp.common.norms;
}

/* joined: by token_down. */
static int run_token_down(void *ctx, bool joined)
{
    struct token_down_test *x = ctx;
    struct selftest *b = x->t->b;
    struct device *d = b->d;
    size_t items = (size_t)d->row_items;

    if (joined)
        return jobs_token_down(d, &x->bank, &(struct expert_sum){x->used, 0, x->used, 1.0f},
                               common_norms(b), kernel_set_token_norms(d) ? &x->next : NULL, b->e);
    x->next.sum = (struct expert_sum){x->used, 0, x->used, 1.0f};
    if (jobs_down(d, &x->bank, 0, x->used, 0, b->e) < 0 ||
        jobs_norm_args(d, common_norms(b), &x->next, b->e) < 0)
        return ERR_DEVICE;
    x->next.sum.used = 0;
    return selftest_core(b, CORE_NORM, "norm", items, 1, 1, items);
}

/* What it reads, to the device; mid: the rows between. */
static int put_token_down(struct token_down_test *x, const float *mid, const float *row)
{
    struct selftest *b = x->t->b;
    struct device *d = b->d;
    size_t n = (size_t)(x->used * x->t->ffn), blocks = n / 32 * sizeof(float);
    struct quantised_rows q;
    struct tile tile[USED_MOST];
    struct entry entry[USED_MOST];
    int rc = selftest_quantised_init(&q, b, n);

    for (int i = 0; i < x->used; i++) {
        tile[i] = (struct tile){i, 1, 0, 0};
        entry[i] = (struct entry){0, i};
    }
    if (rc == 0) {
        selftest_quantise(&q, mid);
        if (selftest_put(b, d->mq.q, q.values, q.bytes) < 0 ||
            selftest_put(b, d->mq.d, q.scales, blocks) < 0 ||
            selftest_put(b, d->mq.s, q.sums, blocks) < 0 ||
            selftest_put(b, d->tiles, tile, (size_t)x->used * sizeof *tile) < 0 ||
            selftest_put(b, d->entries, entry, (size_t)x->used * sizeof *entry) < 0 ||
            selftest_put(b, d->all_weights, x->weights, (size_t)x->used * 4) < 0 ||
            selftest_put(b, d->x, row, (size_t)x->t->hidden * 4) < 0)
            rc = ERR_DEVICE;
    }
    selftest_quantised_release(&q);
    return rc;
}

/* The row and its norm, as they should be. */
static int want_token_down(struct token_down_test *x, const float *mid, float *out, float *row)
{
    struct expert_test *t = x->t;
    size_t hidden = (size_t)t->hidden;

    for (int s = 0; s < x->used; s++)
        if (reference_multiply(&t->w.down, mid + s * t->ffn, out + (size_t)s * hidden) < 0)
            return error_set(t->b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    reference_combine(out, hidden, x->weights, x->used, t->hidden, row);
    return 0;
}

static int token_down_right(struct token_down_test *x, float *mid, float *row, float *out,
                            float *got, bool *right)
{
    struct expert_test *t = x->t;
    struct selftest *b = t->b;
    struct device *d = b->d;
    size_t bytes = (size_t)t->hidden * 4;

    if (put_token_down(x, mid, row) < 0 || job_begin(d, b->e) < 0 || run_token_down(x, true) < 0 ||
        job_end(d, b->e) < 0 || job_harvest(d, b->e) < 0 ||
        selftest_get(b, d->x, 0, got, bytes) < 0 || want_token_down(x, mid, out, row) < 0)
        return ERR_DEVICE;
    *right = memcmp(got, row, bytes) == 0;
    if (!*right || !kernel_set_token_norms(d))
        return 0;
    if (x->next.w)
        reference_norm(row, common_norms(b), &b->d->base.config.model->output_norm, t->hidden, row);
    if (selftest_get(b, d->h, 0, got, bytes) < 0 ||
        selftest_same_quantised(b, &d->hq, row, 1, t->hidden, right) < 0)
        return ERR_DEVICE;
    *right = *right && memcmp(got, row, bytes) == 0;
    return 0;
}

static int upload(struct selftest *b, const float *data, size_t n, cl_mem *out)
{
    if (!data)
        return 0;
    return memory_buffer(b->d, n * 4, out, "the self-test", b->e) < 0
               ? ERR_DEVICE
               : selftest_put(b, *out, data, n * 4);
}

static int test_token_down(struct expert_test *t)
{
    struct selftest *b = t->b;
    struct device *d = b->d;
    const struct norm_weights *w = &d->base.config.model->output_norm;
    struct token_down_test x = {.t = t,
                                .used = d->base.config.model->hp.n_experts_used,
                                .bank = {{&t->block}, 1, NULL},
                                .next = {.x = d->x, .h = d->h, .rows = 1}};
    size_t n = (size_t)t->hidden, used = (size_t)x.used;
    float *mid = selftest_randoms(b, used * (size_t)t->ffn, 2.0f),
          *row = selftest_randoms(b, n, 1.0f), *out = mem_alloc(used * n, sizeof *out),
          *got = mem_alloc(n, sizeof *got);
    bool right = false;
    int rc = ERR_DEVICE;

    x.weights = selftest_randoms(b, used, 1.0f);
    if (!mid || !row || !out || !got || !x.weights)
        rc = error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    else if (upload(b, w->weight, n, &x.next.w) == 0 && upload(b, w->bias, n, &x.next.b) == 0)
        rc = token_down_right(&x, mid, row, out, got, &right);
    if (rc == 0 && !right)
        selftest_wrong(b, "token_down");
    else if (rc == 0)
        rc = selftest_compare(b, "token_down", run_token_down, &x);
    memory_release(&x.next.w);
    memory_release(&x.next.b);
    mem_free(x.weights);
    mem_free(mid);
    mem_free(row);
    mem_free(out);
    mem_free(got);
    return rc;
}

/* token_gate_up of as many experts as the model uses, all of them this one, on one row. */
struct token_gate_test {
    struct expert_test *t;
    int used;
    struct expert_bank bank;
};

/* joined: by token_gate_up. */
static int run_token_gate(void *ctx, bool joined)
{
    struct token_gate_test *x = ctx;
    struct selftest *b = x->t->b;

    return joined ? jobs_token_gate_up(b->d, x->t->shape, &x->bank, x->used, b->e)
                  : jobs_gate_up(b->d, x->t->shape, &x->bank, 0, x->used, 0, b->e);
}

/* mid: the row that gate_up gave, once an expert. */
static int token_gate_right(struct token_gate_test *x, const float *mid, const void *zeros,
                            bool *right)
{
    struct selftest *b = x->t->b;
    struct device *d = b->d;
    size_t n = (size_t)(x->used * x->t->ffn);
    struct tile tile[USED_MOST];
    struct entry entry[USED_MOST];

    for (int i = 0; i < x->used; i++) {
        tile[i] = (struct tile){i, 1, 0, 0};
        entry[i] = (struct entry){0, i};
    }
    if (selftest_put(b, d->mq.q, zeros, n) < 0 || selftest_put(b, d->mq.d, zeros, n / 8) < 0 ||
        selftest_put(b, d->mq.s, zeros, n / 8) < 0 ||
        selftest_put(b, d->tiles, tile, (size_t)x->used * sizeof *tile) < 0 ||
        selftest_put(b, d->entries, entry, (size_t)x->used * sizeof *entry) < 0 ||
        job_begin(d, b->e) < 0 || run_token_gate(x, true) < 0 || job_end(d, b->e) < 0 ||
        job_harvest(d, b->e) < 0)
        return ERR_DEVICE;
    return selftest_same_quantised(b, &d->mq, mid, x->used, x->t->ffn, right);
}

/* Behind gate_up's own test, whose row of h is still there. */
static int test_token_gate(struct expert_test *t)
{
    struct selftest *b = t->b;
    struct token_gate_test x = {
        t, b->d->base.config.model->hp.n_experts_used, {{&t->block}, 1, NULL}};
    size_t n = (size_t)(x.used * t->ffn);
    float *mid = mem_alloc(n, sizeof *mid);
    char *zeros = mem_alloc(n, 1);
    bool right = true;
    int rc;

    for (size_t i = 0; i < n && mid; i++)
        mid[i] = t->mid[i % (size_t)t->ffn];
    rc = mid && zeros ? token_gate_right(&x, mid, zeros, &right)
                      : error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
    if (rc == 0 && !right)
        selftest_wrong(b, "token_gate_up");
    else if (rc == 0)
        rc = selftest_compare(b, "token_gate_up", run_token_gate, &x);
    mem_free(zeros);
    mem_free(mid);
    return rc;
}

static void judge(struct expert_test *t, const char *kernel, const struct matrix *m, bool right)
{
    char name[48];

    selftest_name(name, sizeof name, kernel, m->type, t->many);
    if (!right)
        selftest_wrong(t->b, name);
}

/* Whether the kernel is there and this many experts of one token fit. */
static bool token_downs(const struct expert_test *t)
{
    const struct device *d = t->b->d;
    int used = d->base.config.model->hp.n_experts_used;

    return kernel_set_token_downs(d, &t->w.down) && used > 0 && used <= USED_MOST &&
           t->ffn <= d->most_ffn;
}

/* One expert of the model as in the jobs: gate, up, activation, quantisation again, down. */
int selftest_expert(struct selftest *b, const struct ffn_shape *s, const struct expert_weights *x,
                    int many)
{
    const struct device_config *c = &b->d->base.config;
    int rows = test_rows(b->d, x->up.type, many);
    struct expert_test t;
    bool gate_ok = true, down_ok = true;
    int rc;

    if ((many && rows < 2) || c->max_rows * c->model->hp.n_experts_used < rows)
        return 0;
    rc = expert_init(&t, b, s, x, rows, many);
    if (rc == 0)
        rc = expert_run(&t);
    if (rc == 0)
        rc = gate_up_right(&t, &gate_ok);
    if (rc == 0 && gate_ok) /* else the inputs of down are unknown */
        rc = down_right(&t, &down_ok);
    if (rc == 0) {
        judge(&t, "gate_up", &t.w.up, gate_ok);
        judge(&t, "down", &t.w.down, down_ok);
    }
    if (rc == 0 && gate_ok && down_ok && !many && token_downs(&t) &&
        kernel_set_token_gates(b->d, &t.w.up))
        rc = test_token_gate(&t);
    if (rc == 0 && gate_ok && down_ok && !many && token_downs(&t))
        rc = test_token_down(&t);
    expert_release(&t);
    return rc < 0 ? ERR_DEVICE : 0;
}

#define DUEL_BYTES ((size_t)128 << 20) /* of different experts */

/* One token's experts by the kernels in use, each with weights of its own as in a pass. */
struct expert_duel {
    struct expert_test t;
    struct block more[BANK]; /* bank.n - 1 of them */
    struct token_gate_test gate;
    struct token_down_test down;
};

/* Tiles of one entry each, for experts of a bank of n one after the other. */
static int put_tiles(struct selftest *b, int used, int n)
{
    struct tile tile[USED_MOST];
    struct entry entry[USED_MOST];

    for (int i = 0; i < used; i++) {
        tile[i] = (struct tile){i, 1, i % n, 0};
        entry[i] = (struct entry){0, i};
    }
    return selftest_put(b, b->d->tiles, tile, (size_t)used * sizeof *tile) < 0 ||
                   selftest_put(b, b->d->entries, entry, (size_t)used * sizeof *entry) < 0
               ? ERR_DEVICE
               : 0;
}

/* Inputs are what expert_run left; the factors of experts are zero, so that the row stays. */
static int duel_init(struct expert_duel *x, struct selftest *b)
{
    struct expert_test *t = &x->t;
    int used = b->d->base.config.model->hp.n_experts_used;
    size_t bytes = t->w.gate.bytes + t->w.up.bytes + t->w.down.bytes;
    float zeros[USED_MOST] = {0};
    struct expert_bank *bank = &x->gate.bank;

    x->gate.t = x->down.t = t;
    x->gate.used = x->down.used = used;
    x->down.next = (struct norm_rows){.x = b->d->x, .h = b->d->h, .rows = 1};
    bank->at[bank->n++] = &t->block;
    while (bank->n < used && bank->n < BANK && (size_t)(bank->n + 1) * bytes <= DUEL_BYTES) {
        struct block *next = &x->more[bank->n - 1];

        bank->at[bank->n++] = next;
        if (put_block(t, next) < 0)
            return ERR_DEVICE;
    }
    x->down.bank = *bank;
    return put_tiles(b, used, bank->n) < 0 ||
                   selftest_put(b, b->d->all_weights, zeros, (size_t)used * 4) < 0
               ? ERR_DEVICE
               : 0;
}

/* gate_up where token_gate_up is not used. */
static int run_gates(void *ctx, bool joined)
{
    struct token_gate_test *x = ctx;

    return run_token_gate(ctx, joined && kernel_set_token_gates(x->t->b->d, &x->t->w.up));
}

int selftest_expert_duel(struct selftest *b, enum dtype type, const struct ffn_shape *s,
                         const struct expert_weights *x, struct type_kernels *other,
                         double ratio[TOKEN_KERNELS])
{
    const struct hparams *hp = &b->d->base.config.model->hp;
    const struct norm_weights *w = &b->d->base.config.model->output_norm;
    struct expert_duel *duel;
    int rc = ERR_DEVICE;

    if (hp->n_experts_used < 1 || hp->n_experts_used > USED_MOST || x->up.rows > b->d->most_ffn)
        return 0;
    if (!(duel = mem_alloc(1, sizeof *duel)))
        return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for measuring");
    if (expert_init(&duel->t, b, s, x, 1, 0) == 0 && expert_run(&duel->t) == 0 &&
        duel_init(duel, b) == 0 &&
        upload(b, w->weight, (size_t)hp->hidden, &duel->down.next.w) == 0 &&
        upload(b, w->bias, (size_t)hp->hidden, &duel->down.next.b) == 0)
        rc = 0;
    if (rc == 0 && x->up.type == type)
        rc = selftest_duel(b, type, other, run_gates, &duel->gate, &ratio[TOKEN_GATE_UP]);
    if (rc == 0 && x->down.type == type && token_downs(&duel->t))
        rc = selftest_duel(b, type, other, run_token_down, &duel->down, &ratio[TOKEN_DOWN]);
    for (int i = 0; i < BANK; i++)
        release_block(&duel->more[i]);
    memory_release(&duel->down.next.w);
    memory_release(&duel->down.next.b);
    expert_release(&duel->t);
    mem_free(duel);
    return rc;
}
